//! Receiving snapshots.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use larder_testkit::KernelMount;
use rustix::fs::{FallocateFlags, fallocate};

use crate::measure::{Run, drop_caches};
use crate::program::larder_program;
use crate::snapshots::{SENT, Sent, SnapshotOptions, Snapshots};
use crate::table::Comparison;

/// Receive snapshots durably into an empty file system: btrfs receive and a sync on the kernel's
/// btrfs against larder receive
#[derive(Debug, Args)]
pub struct Receive {
    #[command(flatten)]
    snapshots: SnapshotOptions,
}

impl Receive {
    pub fn run(self) -> anyhow::Result<()> {
        let receiving =
            Receiving { snapshots: Snapshots::new(&self.snapshots)?, larder: larder_program()? };
        let mount = receiving.snapshots.mount();
        for (_, sent) in SENT {
            Snapshots::kernel_send(&mount, sent, &receiving.stream(sent))?;
        }
        drop(mount);
        for (what, sent) in SENT {
            println!("receive: {what}");
            let repeats = self.snapshots.repeats;
            let (theirs, ours) = (|| receiving.by_kernel(sent), || receiving.by_larder(sent));
            Comparison::measure("receive", repeats, theirs, ours)?.print("btrfs receive");
        }
        Ok(())
    }
}

struct Receiving {
    snapshots: Snapshots,
    larder: PathBuf,
}

impl Receiving {
    fn stream(&self, (name, _): Sent) -> PathBuf {
        self.snapshots.scratch().join(format!("{name}.stream"))
    }

    /// An empty file system with the stream's parent. Its space is allocated in advance, as on a
    /// device: neither side must find memory or space for an image file while it receives.
    fn target(&self, (_, parent): Sent) -> anyhow::Result<PathBuf> {
        let target = self.snapshots.scratch().join("target.img");
        if !target.exists() {
            let len_bytes = fs::metadata(self.snapshots.image())?.len();
            fallocate(File::create(&target)?, FallocateFlags::empty(), 0, len_bytes)?;
        }
        let options = ["--quiet", "--force", "--nodiscard"].map(OsStr::new);
        Run::of("mkfs.btrfs", options.into_iter().chain([target.as_os_str()]))?;
        if let Some(parent) = parent {
            self.larder_receive((parent, None), &target)?;
        }
        drop_caches()?;
        // Loads the programs first: both sides measure receiving, not loading.
        for program in [Path::new("btrfs"), &self.larder] {
            Run::of(program, ["--version"])?;
        }
        Ok(target)
    }

    fn by_kernel(&self, sent: Sent) -> anyhow::Result<Run> {
        let target = self.target(sent)?;
        let mount = KernelMount::open(&[target], "noatime,max_inline=2048");
        let start = Instant::now();
        let stream = self.stream(sent);
        let options = ["receive", "-q", "-f"].map(OsStr::new);
        let files = [stream.as_os_str(), mount.path().as_os_str()];
        let run = Run::of("btrfs", options.into_iter().chain(files))?;
        mount.sync();
        Ok(Run { elapsed: start.elapsed(), ..run })
    }

    fn by_larder(&self, sent: Sent) -> anyhow::Result<Run> {
        let target = self.target(sent)?;
        self.larder_receive(sent, &target)
    }

    fn larder_receive(&self, sent: Sent, target: &Path) -> anyhow::Result<Run> {
        let stream = self.stream(sent);
        ensure!(stream.exists(), "{} was not sent", stream.display());
        let options = ["receive", "-q", "-f"].map(OsStr::new);
        let target = format!("{}:/", target.display());
        Run::of(&self.larder, options.into_iter().chain([stream.as_os_str(), target.as_ref()]))
    }
}
