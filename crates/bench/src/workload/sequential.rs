//! One large file, written and read back.

use std::time::Instant;

use clap::Args;

use crate::mounts::{compare, shell};

/// Write one large file with fsync, and read it back: dd on both mounts
#[derive(Debug, Args)]
pub struct Sequential {
    /// Mebibytes
    #[arg(long, default_value_t = 2048)]
    mebibytes: usize,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 2)]
    repeats: usize,
}

impl Sequential {
    pub fn run(self) -> anyhow::Result<()> {
        let Self { mebibytes, repeats } = self;
        let write = format!("dd if=/dev/zero of=f bs=1M count={mebibytes} conv=fsync status=none");
        let timed = |root: &std::path::Path, line: &str| -> anyhow::Result<f64> {
            let start = Instant::now();
            shell(root, line)?;
            Ok(mebibytes as f64 / start.elapsed().as_secs_f64())
        };
        compare("write sequentially, fsync", "MiB/s", repeats, |root| timed(root, &write))?;
        compare("read it back, cold", "MiB/s", repeats, |root| {
            shell(root, &write)?;
            crate::measure::drop_caches()?;
            timed(root, "dd if=f of=/dev/null bs=1M status=none")
        })?;
        compare("read it back, warm", "MiB/s", repeats, |root| {
            shell(root, &format!("{write}; cat f > /dev/null"))?;
            timed(root, "dd if=f of=/dev/null bs=1M status=none")
        })
    }
}
