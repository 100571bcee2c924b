//! Devices whose superblocks are one commit older than the newest.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Devices that are one commit behind, and whether they lack tree blocks of that commit. Every
/// thread that reads tree blocks adds to it.
#[derive(Debug, Default)]
pub(crate) struct OneCommitBehind {
    devices: Mutex<BTreeMap<u64, bool>>,
}

impl OneCommitBehind {
    /// Notes that the superblocks of a device are one commit old.
    pub(crate) fn expect(&self, devid: u64) {
        self.lock().insert(devid, false);
    }

    /// Notes that a device has no good copy of a tree block of the last commit.
    pub(crate) fn lacks_block(&self, devid: u64) {
        if let Some(lacks) = self.lock().get_mut(&devid) {
            *lacks = true;
        }
    }

    /// The devices, and whether they lack blocks.
    pub(crate) fn take(&self) -> BTreeMap<u64, bool> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, bool>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
