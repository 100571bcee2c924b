//! A mounted btrfs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::command::{CommandError, run};

/// Attempts to unmount before a lazy unmount.
const ATTEMPTS: u32 = 20;

/// A mount point with a btrfs on it; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
}

impl Mount {
    /// Mounts `device` at the existing folder `point` with the comma-separated `options`.
    pub fn new(device: &Path, point: &Path, options: &str) -> Result<Self, CommandError> {
        let mut arguments: Vec<&OsStr> = vec!["-t".as_ref(), "btrfs".as_ref()];
        if !options.is_empty() {
            arguments.extend::<[&OsStr; 2]>(["-o".as_ref(), options.as_ref()]);
        }
        arguments.extend([device.as_os_str(), point.as_os_str()]);
        run("mount", arguments)?;
        Ok(Self { point: point.to_owned() })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Changes the options of the mount, such as from `ro` to `rw`.
    pub fn remount(&self, options: &str) -> Result<(), CommandError> {
        let options = format!("remount,{options}");
        run("mount", ["-o".as_ref(), options.as_ref(), self.point.as_os_str()]).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mut outcome = run("umount", [&self.point]);
        for attempt in 0..ATTEMPTS {
            if outcome.is_ok() {
                return;
            }
            sleep(Duration::from_millis(u64::from(10 * attempt)));
            outcome = run("umount", [&self.point]);
        }
        if let Err(error) = outcome {
            eprintln!("leaving {} to a lazy unmount: {error}", self.point.display());
            let _ = run("umount", ["--lazy".as_ref(), self.point.as_os_str()]);
        }
    }
}
