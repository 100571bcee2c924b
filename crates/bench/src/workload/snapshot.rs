//! Taking snapshots of a large subvolume.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use larder::{OpenOptions, SnapshotKind};
use larder_testkit::KernelMount;

use super::ImageOptions;

/// Snapshot a large subvolume, durably: btrfs subvolume snapshot on the kernel's btrfs against the
/// library
#[derive(Debug, Args)]
pub struct Snapshot {
    #[command(flatten)]
    pub(super) image: ImageOptions,
}

impl Snapshot {
    pub fn run(self) -> anyhow::Result<()> {
        let image = self.image.image()?;
        let repeats = self.image.repeats.max(1);
        let mount = KernelMount::open(&[image.path().to_owned()], "");
        let theirs = best(repeats, |number| {
            let name = mount.path().join(format!("kernel-{number}"));
            let mut command = Command::new("btrfs");
            command.args(["subvolume", "snapshot", "-r"]).arg(mount.path()).arg(name);
            let output = command.output()?;
            ensure!(output.status.success(), "btrfs subvolume snapshot failed");
            Ok(())
        })?;
        for number in 0..repeats {
            let name = mount.path().join(format!("kernel-{number}"));
            Command::new("btrfs").args(["subvolume", "delete", "-c"]).arg(name).output()?;
        }
        drop(mount);
        let filesystem = OpenOptions::new().write(true).open([image.path()])?;
        let root = filesystem.subvolume("/")?;
        let ours = best(repeats, |number| {
            root.snapshot(format!("larder-{number}"), SnapshotKind::ReadOnly)?;
            Ok(())
        })?;
        for number in 0..repeats {
            root.delete_subvolume(format!("larder-{number}"))?;
        }
        filesystem.sync()?;
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        println!("kernel: {:.2} ms", milliseconds(theirs));
        println!("larder: {:.2} ms", milliseconds(ours));
        Ok(())
    }
}

/// The shortest of several runs.
fn best(
    repeats: usize,
    mut work: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    let mut best = Duration::MAX;
    for number in 0..repeats {
        let since = Instant::now();
        work(number)?;
        best = best.min(since.elapsed());
    }
    Ok(best)
}
