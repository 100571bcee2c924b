//! From a device to the mounted file system that has it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_fuse::usage::MountTable;
use larder_ioctl::DeviceInfo;

/// The device at `path`, and a directory of the mounted file system that has it.
pub fn mount_with(path: &Path) -> anyhow::Result<Option<(File, DeviceInfo)>> {
    Ok(found(path)?.map(|(_, directory, device)| (directory, device)))
}

/// The place where the file system is mounted that has the device at `path`.
pub fn mounted_with(path: &Path) -> Option<PathBuf> {
    Some(found(path).ok()??.0)
}

fn found(path: &Path) -> anyhow::Result<Option<(PathBuf, File, DeviceInfo)>> {
    for mount in MountTable::of_this_process()?.of_btrfs() {
        // What this user may not open has no device for this user either.
        let Ok(directory) = File::open(&mount.path) else { continue };
        let Ok(devices) = larder_ioctl::devices(&directory) else { continue };
        let is_it = |device: &DeviceInfo| {
            let name = Path::new(OsStr::from_bytes(&device.path));
            name.canonicalize().is_ok_and(|name| name == path)
        };
        if let Some(device) = devices.into_iter().find(is_it) {
            return Ok(Some((mount.path.clone(), directory, device)));
        }
    }
    Ok(None)
}
