//! A file as a block device.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::require_kernel;
use crate::command::{CommandError, run};

/// Attempts to attach: another process may attach a free device first.
const ATTEMPTS: u32 = 40;

/// How long to wait for the end of a detachment.
const DETACHMENT: Duration = Duration::from_secs(5);

/// A loop device; detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `file` for reading and writing. Panics if that is impossible.
    #[track_caller]
    pub fn attach(file: &Path) -> Self {
        Self::attach_with(file, &[])
    }

    /// Attaches `file` so that nothing, not even log replay, can write to it.
    #[track_caller]
    pub fn attach_read_only(file: &Path) -> Self {
        Self::attach_with(file, &["--read-only"])
    }

    /// Attaches `file` as a disk, whose partitions get nodes of their own.
    #[track_caller]
    pub fn attach_disk(file: &Path) -> Self {
        Self::attach_with(file, &["--partscan"])
    }

    /// Attaches `file` as a disk with sectors of this many bytes.
    #[track_caller]
    pub fn attach_with_sectors(file: &Path, sector_bytes: u32) -> Self {
        Self::attach_with(file, &["--sector-size", &sector_bytes.to_string()])
    }

    #[track_caller]
    fn attach_with(file: &Path, options: &[&str]) -> Self {
        require_kernel();
        let mut last_error = None;
        for attempt in 0..ATTEMPTS {
            match losetup(file, options) {
                Ok(path) => return Self { path },
                Err(error) => last_error = Some(error),
            }
            sleep(Duration::from_millis(u64::from(attempt)));
        }
        let error = last_error.expect("at least one attempt");
        panic!("needs root and loop devices: cannot attach {}: {error}", file.display());
    }

    /// The device node, such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file behind the device; none if nothing is attached.
    fn backing_file(&self) -> Option<String> {
        let node = self.path.file_name()?.to_str()?;
        std::fs::read_to_string(format!("/sys/block/{node}/loop/backing_file")).ok()
    }

    /// Waits until the device has let go of `file`. The kernel detaches a device that another
    /// program has open, such as a scan for file systems, only when that program closes it; until
    /// then a search for the devices of a file system finds it, with what it had cached.
    fn wait_for_detachment(&self, file: Option<&str>) {
        let deadline = Instant::now() + DETACHMENT;
        while file.is_some() && self.backing_file().as_deref() == file {
            if Instant::now() > deadline {
                return eprintln!("{} is still attached", self.path.display());
            }
            sleep(Duration::from_millis(1));
        }
    }
}

fn losetup(file: &Path, options: &[&str]) -> Result<PathBuf, CommandError> {
    let mut arguments = vec![OsStr::new("--find"), OsStr::new("--show")];
    arguments.extend(options.iter().map(OsStr::new));
    arguments.push(file.as_os_str());
    run("losetup", arguments).map(|output| PathBuf::from(output.trim()))
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The kernel remembers which devices belonged to a file system, which must not affect a
        // later one on the same node. The command fails if the kernel never knew the device, or has
        // forgotten it already.
        let forget = ["device", "scan", "--forget"].map(OsStr::new);
        let _ = run("btrfs", forget.into_iter().chain([self.path.as_os_str()]));
        let file = self.backing_file();
        match run("losetup", ["--detach".as_ref(), self.path.as_os_str()]) {
            Ok(_) => self.wait_for_detachment(file.as_deref()),
            Err(error) => eprintln!("cannot detach {}: {error}", self.path.display()),
        }
    }
}
