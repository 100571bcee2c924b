//! The space of a device as a JSON object.

use larder::DeviceInfo;
use serde::Serialize;

use super::{slack, unallocated};

/// The space of a device, in bytes.
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
