//! Guards of kernel resources: each undoes its work when it is dropped, also when a test panics. A
//! failure to undo is reported on standard error and never panics, since a panic while unwinding
//! would abort the tests.
//!
//! Guards that need each other are fields of one structure, the dependent one first: fields drop in
//! the order of their declaration, so a mount goes before its devices and these before their files.

mod kernel_mount;
mod loop_device;
mod mount;
mod rings;
mod scratch;

use std::path::Path;
use std::sync::OnceLock;

pub use kernel_mount::KernelMount;
pub use loop_device::LoopDevice;
pub use mount::Mount;
pub use rings::RingsOffered;
pub use scratch::Scratch;

/// Panics unless this process is root, loop devices exist and the kernel supports btrfs.
#[track_caller]
pub fn require_kernel() {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    if let Some(reason) = MISSING.get_or_init(missing_requirement) {
        panic!("needs root and loop devices: {reason}");
    }
}

fn missing_requirement() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("this process does not run as root".into());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("/dev/loop-control does not exist".into());
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !filesystems.lines().any(|line| line.trim() == "btrfs") {
        return Some("/proc/filesystems does not list btrfs".into());
    }
    None
}
