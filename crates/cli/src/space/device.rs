//! The space of a device.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use larder::DeviceInfo;
use serde::Serialize;

/// The space of a device as a JSON object, in bytes.
#[derive(Serialize)]
pub struct DeviceSpace {
    devid: u64,
    /// None if it is missing.
    path: Option<String>,
    /// Its part of the file system, without slack.
    size: u64,
    slack: u64,
    unallocated: u64,
}

impl DeviceSpace {
    pub fn new(device: &DeviceInfo) -> Self {
        Self {
            devid: device.id,
            path: device.name.clone(),
            size: device.total_bytes,
            slack: slack(device),
            unallocated: unallocated(device),
        }
    }
}

/// Bytes of a device that no block group has.
pub fn unallocated(device: &DeviceInfo) -> u64 {
    device.total_bytes.saturating_sub(device.allocated_bytes)
}

/// Bytes of a device past the end of its part of the file system; none where it cannot be read.
pub fn slack(device: &DeviceInfo) -> u64 {
    let opened = device.name.as_ref().and_then(|name| File::open(name).ok());
    let len_bytes = opened.and_then(|mut device| device.seek(SeekFrom::End(0)).ok());
    len_bytes.unwrap_or(0).saturating_sub(device.total_bytes)
}
