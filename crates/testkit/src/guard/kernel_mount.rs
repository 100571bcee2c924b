//! Image files, attached and mounted.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{LoopDevice, Mount, Scratch, require_kernel};
use crate::command::CommandError;

/// A file system that the kernel has mounted from image files; unmounted and detached when dropped.
///
/// The kernel cannot mount two file systems of several devices with the same fsid at once, so keep
/// a copy of an image unmounted while the original is mounted.
#[derive(Debug)]
pub struct KernelMount {
    // Dropped in this order.
    mount: Mount,
    devices: Vec<LoopDevice>,
    _point: Scratch,
}

impl KernelMount {
    /// Mounts the file system on `files` with the comma-separated mount `options`.
    ///
    /// With `ro` among the options the loop devices are read-only as well: not even log replay can
    /// change the files. The last file is passed to the kernel as the source, the others as
    /// `device=`; leave one out and add `degraded` to test a missing device.
    ///
    /// Errors are the kernel's refusal; panics without root or loop devices.
    #[track_caller]
    pub fn try_open(files: &[PathBuf], options: &str) -> Result<Self, CommandError> {
        require_kernel();
        let read_only = options.split(',').any(|option| option == "ro");
        let attach = if read_only { LoopDevice::attach_read_only } else { LoopDevice::attach };
        let devices: Vec<_> = files.iter().map(|file| attach(file)).collect();
        let (main, others) = devices.split_last().expect("a file system has a device");
        let mut all_options: Vec<String> =
            options.split(',').filter(|option| !option.is_empty()).map(Into::into).collect();
        all_options.extend(others.iter().map(|d| format!("device={}", d.path().display())));
        let point = Scratch::new();
        let mount = Mount::new(main.path(), point.path(), &all_options.join(","))?;
        Ok(Self { mount, devices, _point: point })
    }

    /// As [`KernelMount::try_open`], but panics if the kernel refuses.
    #[track_caller]
    pub fn open(files: &[PathBuf], options: &str) -> Self {
        Self::try_open(files, options).unwrap_or_else(|error| {
            panic!("the kernel does not mount {files:?}: {error}\n  {}", recent_kernel_messages())
        })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The loop devices, in the order of the files.
    pub fn devices(&self) -> impl Iterator<Item = &Path> {
        self.devices.iter().map(LoopDevice::path)
    }

    /// Commits the running transaction (`syncfs`).
    #[track_caller]
    pub fn sync(&self) {
        let root = File::open(self.path()).expect("the mount point opens");
        rustix::fs::syncfs(&root).unwrap_or_else(|error| panic!("syncfs: {error}"));
    }

    /// Waits until the kernel has deleted all subvolumes in its list, which it does in the
    /// background.
    #[track_caller]
    pub fn finish_deletions(&self) {
        let words =
            ["subvolume", "sync", "--", &self.path().display().to_string()].map(String::from);
        crate::command::run("btrfs", words).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Changes the options of the mount.
    #[track_caller]
    pub fn remount(&self, options: &str) {
        self.mount.remount(options).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The kernel's last messages about btrfs: mount(8) only says that it failed.
fn recent_kernel_messages() -> String {
    let log = crate::command::run("dmesg", [] as [&str; 0]).unwrap_or_default();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("BTRFS")).collect();
    lines[lines.len().saturating_sub(8)..].join("\n  ")
}
