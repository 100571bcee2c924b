//! The kernel's list of devices, from which it puts file systems on several devices together.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zerocopy::FromZeros;

use crate::abi::{DEVICES_READY, FORGET_DEV, SCAN_DEV, VolArgs};
use crate::call;
use crate::invalid::invalid;

/// The device that answers these requests, if the kernel has btrfs.
const CONTROL: &str = "/dev/btrfs-control";

/// The kernel's list of devices, which needs root.
#[derive(Debug)]
pub struct DeviceList(File);

impl DeviceList {
    /// Opens it. Fails with [`NotFound`](io::ErrorKind::NotFound) if the kernel has no btrfs.
    pub fn open() -> io::Result<Self> {
        Ok(Self(File::options().read(true).write(true).open(CONTROL)?))
    }

    /// Makes the kernel read the superblock of the block device at `path`, and know the device.
    pub fn scan(&self, path: &Path) -> io::Result<()> {
        call::write::<SCAN_DEV, _>(&self.0, of_device(path)?)
    }

    /// Makes the kernel forget the block device at `path`, or all devices that are not mounted.
    pub fn forget(&self, path: Option<&Path>) -> io::Result<()> {
        let device = path.map_or_else(|| Ok(VolArgs::new_zeroed()), of_device)?;
        call::write::<FORGET_DEV, _>(&self.0, device)
    }

    /// Whether the kernel knows all devices of the file system on the block device at `path`, which
    /// it reads as [`scan`](Self::scan) does.
    pub fn is_ready(&self, path: &Path) -> io::Result<bool> {
        Ok(call::ask::<DEVICES_READY, _>(&self.0, of_device(path)?)? == 0)
    }
}

fn of_device(path: &Path) -> io::Result<VolArgs> {
    let mut device = VolArgs::new_zeroed();
    let path = path.as_os_str().as_bytes();
    // A zero ends it.
    let room = device.name.len() - 1;
    let name = device.name.get_mut(..path.len()).filter(|_| path.len() <= room);
    name.ok_or(invalid("a path that is too long"))?.copy_from_slice(path);
    Ok(device)
}
