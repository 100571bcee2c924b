//! Sending snapshots.

use std::path::Path;

use clap::Args;

use crate::measure::drop_caches;
use crate::program::larder_program;
use crate::snapshots::{SENT, SnapshotOptions, Snapshots};
use crate::table::Comparison;

/// Send snapshots to /dev/null with cold caches: btrfs send against larder send
#[derive(Debug, Args)]
pub struct Send {
    #[command(flatten)]
    snapshots: SnapshotOptions,
}

impl Send {
    pub fn run(self) -> anyhow::Result<()> {
        let snapshots = Snapshots::new(&self.snapshots)?;
        let larder = larder_program()?;
        let nowhere = Path::new("/dev/null");
        for (what, sent) in SENT {
            println!("send: {what}");
            let theirs = || {
                let mount = snapshots.mount();
                drop_caches()?;
                Snapshots::kernel_send(&mount, sent, nowhere)
            };
            let ours = || {
                drop_caches()?;
                snapshots.larder_send(&larder, sent, nowhere)
            };
            Comparison::measure("send", self.snapshots.repeats, theirs, ours)?.print("btrfs send");
        }
        Ok(())
    }
}
