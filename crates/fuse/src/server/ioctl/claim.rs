//! Devices that a caller names, to become devices of the file system.
//!
//! # Invariants
//! - A device is opened as the caller sees its path.
//! - What it has is lost: the program that asks has looked at that, as with the kernel.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder::mkfs::Claimed;
use rustix::io::Errno;

/// Takes the device or image file at an absolute path that the process `caller` gave.
pub(super) fn claim(caller: u32, path: &[u8]) -> Result<Claimed, Errno> {
    let path = as_caller_sees(caller, path)?;
    Claimed::open(&path, None, true, false).map_err(|error| {
        tracing::error!("{}: {error}", path.display());
        Errno::from_raw_os_error(error.errno())
    })
}

/// The path as this process has it. The caller may have another file there than this process.
fn as_caller_sees(pid: u32, path: &[u8]) -> Result<PathBuf, Errno> {
    let path = Path::new(OsStr::from_bytes(path));
    let below = path.strip_prefix("/").map_err(|_| Errno::INVAL)?;
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    if namespace(&pid.to_string()) == namespace("self") {
        return Ok(path.to_owned());
    }
    Ok(Path::new(&format!("/proc/{pid}/root")).join(below))
}
