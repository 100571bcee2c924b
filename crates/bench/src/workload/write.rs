//! Writing a file from its beginning to its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use larder::OpenOptions;
use larder_testkit::{KernelMount, Scratch};

use crate::image::make_empty;
use crate::measure::own_peak_bytes;

/// Bytes of one call.
const CALL_BYTES: usize = 1 << 20;

/// Write one file sequentially, with checksums and a sync at the end: dd conv=fsync on the kernel's
/// btrfs against the library
///
/// Prints MB/s of both sides.
#[derive(Debug, Args)]
pub struct Write {
    /// MiB to write
    #[arg(long, default_value_t = 2048)]
    mib: u64,
    /// Make the images here; existing content is lost
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Bytes of the image
    #[arg(long, default_value_t = 8 << 30)]
    image_bytes: u64,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

impl Write {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = self.image.clone().unwrap_or_else(|| scratch.path().join("write.img"));
        let (mut theirs, mut ours) = (Duration::MAX, Duration::MAX);
        for _ in 0..self.repeats.max(1) {
            make_empty(&image, self.image_bytes)?;
            theirs = theirs.min(self.by_kernel(&image)?);
            make_empty(&image, self.image_bytes)?;
            ours = ours.min(self.by_larder(&image)?);
        }
        let rate = |time: Duration| (self.mib << 20) as f64 / time.as_secs_f64() / 1e6;
        println!("kernel, dd conv=fsync: {:.0} MB/s", rate(theirs));
        println!("larder: {:.0} MB/s", rate(ours));
        println!(
            "larder is {:.2}x as fast; its peak memory was {} MiB",
            rate(ours) / rate(theirs),
            own_peak_bytes() >> 20
        );
        Ok(())
    }

    fn by_kernel(&self, image: &Path) -> anyhow::Result<Duration> {
        let mount = KernelMount::open(&[image.to_owned()], "");
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=1M", "conv=fsync"]);
        command.arg(format!("count={}", self.mib));
        command.arg(format!("of={}", mount.path().join("written").display()));
        let since = Instant::now();
        let output = command.output().context("cannot run dd")?;
        ensure!(output.status.success(), "dd failed: {}", output.status);
        Ok(since.elapsed())
    }

    fn by_larder(&self, image: &Path) -> anyhow::Result<Duration> {
        let filesystem = OpenOptions::new().write(true).open([image])?;
        let root = filesystem.subvolume("/")?;
        let data = vec![0; CALL_BYTES];
        let since = Instant::now();
        let file = root.create("written", 0o644)?;
        for call in 0..self.mib {
            file.write_at(&data, call * CALL_BYTES as u64)?;
        }
        file.sync()?;
        Ok(since.elapsed())
    }
}
