//! Files and block devices to make a file system on.

use std::path::Path;
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice};

use crate::{MkfsError, probe};

/// Opens a device, or makes a file if there is a length for it, and checks that it may be
/// overwritten. Nothing that was there before is changed.
pub(crate) fn open(
    path: &Path,
    new_len_bytes: Option<u64>,
    force: bool,
) -> Result<Arc<FileDevice>, MkfsError> {
    let exists = path.symlink_metadata().is_ok();
    let device = match new_len_bytes {
        Some(len_bytes) if !exists => FileDevice::create(path, len_bytes)?,
        _ => FileDevice::open(path, Access::ReadWrite)?,
    };
    if !force {
        refuse_content(&device)?;
    }
    Ok(Arc::new(device))
}

/// Fails if the device holds something that is known.
pub(crate) fn refuse_content(device: &dyn Device) -> Result<(), MkfsError> {
    match probe::content(device)? {
        Some(content) => Err(MkfsError::Occupied { device: device.name().to_owned(), content }),
        None => Ok(()),
    }
}

/// The length that a file will have, or that a device has.
pub(crate) fn new_len(device: &FileDevice, byte_count: Option<u64>, least_bytes: u64) -> u64 {
    let len_bytes = device.len_bytes();
    if device.is_block_device() {
        return len_bytes;
    }
    byte_count.unwrap_or_else(|| len_bytes.max(least_bytes))
}

/// Makes a file this long.
pub(crate) fn resize(device: &FileDevice, len_bytes: u64) -> Result<(), MkfsError> {
    if len_bytes != device.len_bytes() {
        device.set_len(len_bytes)?;
    }
    Ok(())
}
