//! The devices of a volume together. Calls name a chunk, never an address alone: the volume has the
//! map of chunks.

use larder_format::Logical;
use parking_lot::{Mutex, MutexGuard};

use crate::chunk::Chunk;
use crate::member::VolumeDevice;
use crate::report::ReportLimit;
use crate::stats::Counters;
use crate::volume::ReadPolicy;

/// Locks of rows of chunks with parity, shared by rows of equal hash.
const ROW_LOCKS: usize = 64;

/// The devices of a volume.
#[derive(Debug)]
pub(crate) struct Members {
    /// In order of device ids, each of which appears once.
    devices: Vec<VolumeDevice>,
    pub(crate) is_writable: bool,
    pub(crate) read_policy: ReadPolicy,
    pub(crate) counters: Counters,
    /// Counters that belong to no device.
    pub(crate) reports: ReportLimit,
    row_locks: [Mutex<()>; ROW_LOCKS],
}

impl Members {
    pub(crate) fn new(
        mut devices: Vec<VolumeDevice>,
        is_writable: bool,
        read_policy: ReadPolicy,
    ) -> Self {
        devices.sort_by_key(VolumeDevice::devid);
        Self {
            devices,
            is_writable,
            read_policy,
            counters: Counters::default(),
            reports: ReportLimit::default(),
            row_locks: std::array::from_fn(|_| Mutex::new(())),
        }
    }

    /// The devices in order of their ids.
    pub(crate) fn devices(&self) -> &[VolumeDevice] {
        &self.devices
    }

    /// The device with this id.
    pub(crate) fn device(&self, devid: u64) -> Option<&VolumeDevice> {
        let at = self.devices.binary_search_by_key(&devid, VolumeDevice::devid).ok()?;
        Some(&self.devices[at])
    }

    /// Locks a row of a chunk with parity. A thread holds one such lock at a time.
    pub(crate) fn lock_row(&self, chunk: &Chunk, row: u64) -> MutexGuard<'_, ()> {
        let Logical(start) = chunk.row_start(row);
        let number = start / chunk.row_bytes();
        self.row_locks[(number % self.row_locks.len() as u64) as usize].lock()
    }
}
