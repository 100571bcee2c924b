//! The same work on a mount of the kernel's btrfs and on one of larder's: each on a new file system in
//! a file on tmpfs, the kernel's through a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use larder_testkit::{KernelMount, RingsOffered, Scratch};

use crate::image::make_empty;
use crate::workload::larder_program;

/// Bytes of each file system.
const LEN_BYTES: u64 = 8 << 30;

/// How requests reach larder.
#[derive(Clone, Copy)]
enum Transport {
    DevFuse,
    IoUring,
}

/// Measures `rate`, which works below the directory that it is given and returns how much it did in a
/// second, on both sides in turns, larder's through `/dev/fuse` and through io_uring, and prints the best of each.
pub fn compare(
    workload: &str,
    unit: &str,
    repeats: usize,
    rate: impl Fn(&Path) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let transports = [("/dev/fuse", Transport::DevFuse), ("io_uring", Transport::IoUring)];
    let (mut theirs, mut ours) = (0.0_f64, [0.0_f64; 2]);
    for _ in 0..repeats {
        let scratch = Scratch::new();
        let image = scratch.path().join("disk.img");
        make_empty(&image, LEN_BYTES)?;
        theirs = theirs.max(rate(KernelMount::open(&[image], "noatime").path())?);
        drop(scratch);
        for (ours, (_, transport)) in ours.iter_mut().zip(transports) {
            *ours = ours.max(rate(&LarderMount::new(transport)?.path())?);
        }
    }
    for (ours, (through, _)) in ours.into_iter().zip(transports) {
        println!(
            "{workload:<26} kernel {theirs:>8.0}  larder, {through:<9} {ours:>8.0} {unit}  {:.2}x",
            ours / theirs
        );
    }
    Ok(())
}

/// Runs a line in a shell in `directory`, which must succeed, and returns its standard output.
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
    /// The kernel may still be asked whether it offers rings when the mount is there.
    _rings: Option<RingsOffered>,
}

impl LarderMount {
    fn new(transport: Transport) -> anyhow::Result<Self> {
        let (option, rings) = match transport {
            Transport::DevFuse => ("no_io_uring", None),
            Transport::IoUring => ("io_uring", Some(RingsOffered::new())),
        };
        let mount = Self { program: larder_program()?, scratch: Scratch::new(), _rings: rings };
        std::fs::create_dir(mount.path())?;
        let size = LEN_BYTES.to_string();
        let image = mount.scratch.path().join("disk.img");
        let mut command = Command::new(&mount.program);
        command.args(["mount", "-o", option, "--create", &size]).arg(image).arg(mount.path());
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
        // Who unmounts here is at the end of a measurement, which has its result.
        let _ = Command::new(&self.program).arg("umount").arg(self.path()).status();
    }
}
