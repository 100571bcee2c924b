//! The same work on a mount of the kernel's btrfs and on one of larder's: each on a new file system
//! in a file on tmpfs, the kernel's through a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use larder_testkit::{KernelMount, RingsOffered, Scratch};

use crate::image::make_empty;
use crate::program::larder_program;

/// Bytes of each file system.
const LEN_BYTES: u64 = 8 << 30;

/// A file system, and the transport of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's btrfs.
    Kernel,
    /// Larder, through `/dev/fuse`.
    DevFuse,
    /// Larder, through io_uring.
    IoUring,
}

impl Side {
    /// All of them, in the order of the columns of a table.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::DevFuse, Self::IoUring];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::DevFuse => "/dev/fuse",
            Self::IoUring => "io_uring",
        }
    }

    /// Calls `work` with the root of a mount of a new file system, which is removed afterwards.
    /// Larder's mounts get `options` too.
    pub fn on_new_mount<T>(
        self,
        options: Option<&str>,
        work: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let transport = match self {
            Self::Kernel => {
                let scratch = Scratch::new();
                let image = scratch.path().join("disk.img");
                make_empty(&image, LEN_BYTES)?;
                return work(KernelMount::open(&[image], "noatime").path());
            }
            Self::DevFuse => Transport::DevFuse,
            Self::IoUring => Transport::IoUring,
        };
        work(&LarderMount::new(transport, options)?.path())
    }
}

/// The transport of requests to Larder.
#[derive(Clone, Copy)]
enum Transport {
    DevFuse,
    IoUring,
}

/// Measures `rate` on all sides in turns, and prints the best of each. `rate` works below the given
/// directory and returns its work per second.
pub fn compare(
    workload: &str,
    unit: &str,
    repeats: usize,
    rate: impl Fn(&Path) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let mut rates = [0.0_f64; Side::ALL.len()];
    for _ in 0..repeats {
        for (best, side) in rates.iter_mut().zip(Side::ALL) {
            *best = best.max(side.on_new_mount(None, &rate)?);
        }
    }
    let theirs = rates[0];
    for (ours, side) in rates.into_iter().zip(Side::ALL).skip(1) {
        println!(
            "{workload:<26} kernel {theirs:>8.0}  larder, {:<9} {ours:>8.0} {unit}  {:.2}x",
            side.name(),
            ours / theirs
        );
    }
    Ok(())
}

/// Runs a shell command in `directory`, which must succeed, and returns its standard output.
pub fn shell(directory: &Path, line: &str) -> anyhow::Result<String> {
    let mut command = Command::new("bash");
    let output = command.args(["-euo", "pipefail", "-c", line]).current_dir(directory).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A new file system that the `larder` program has mounted; unmounted when dropped.
struct LarderMount {
    program: PathBuf,
    scratch: Scratch,
    /// The kernel may still check whether it offers rings when the mount exists.
    _rings: Option<RingsOffered>,
}

impl LarderMount {
    fn new(transport: Transport, options: Option<&str>) -> anyhow::Result<Self> {
        let (through, rings) = match transport {
            Transport::DevFuse => ("no_io_uring", None),
            Transport::IoUring => ("io_uring", Some(RingsOffered::new())),
        };
        let mount = Self { program: larder_program()?, scratch: Scratch::new(), _rings: rings };
        std::fs::create_dir(mount.path())?;
        let size = LEN_BYTES.to_string();
        let image = mount.scratch.path().join("disk.img");
        let mut command = Command::new(&mount.program);
        command.args(["mount", "-o", through, "--create", &size]);
        command.args(options.iter().flat_map(|options| ["-o", options]));
        command.arg(image).arg(mount.path());
        let status = command.status().context("larder")?;
        ensure!(status.success(), "larder mount: {status}");
        Ok(mount)
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }
}

impl Drop for LarderMount {
    fn drop(&mut self) {
        // The measurement has its result.
        let _ = Command::new(&self.program).arg("umount").arg(self.path()).status();
    }
}
