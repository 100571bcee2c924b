//! Giving a device another size.

use larder_volume::Chunk;

use super::{DeviceWork, Tell, no_device, passes};
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::space::SpaceKind;

impl TransactionManager {
    /// Sets how many bytes of a device the file system uses, and commits. What lies after the new end
    /// is moved before. Calls `tell` in this thread with the progress.
    ///
    /// # Errors
    /// [`Error::NoPlace`] if there is no room for a block group before the new end or on other
    /// devices, [`Error::NoSpace`] if the devices become too small for what is in use. The size stays
    /// as it was then.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn resize_device(&self, devid: u64, total_bytes: u64, tell: &Tell<'_>) -> Result<Moved> {
        let mut work = DeviceWork::begin(self, tell)?;
        work.resize(devid, total_bytes)?;
        Ok(work.moved)
    }
}

impl DeviceWork<'_> {
    /// Does what [`TransactionManager::resize_device`] says.
    pub(super) fn resize(&mut self, devid: u64, total_bytes: u64) -> Result<()> {
        let manager = self.manager;
        let volume = manager.volume();
        let device = volume.device(devid).ok_or_else(|| no_device(devid))?;
        let total_bytes = total_bytes - total_bytes % u64::from(volume.sectorsize());
        if let Some(present) = device.device()
            && total_bytes > present.len_bytes()
        {
            let reason = format!("device {devid} ({}) is smaller", present.name());
            return Err(Error::Devices(reason));
        }
        let limited = Limited::new(manager, devid, total_bytes);
        self.move_chunks(
            |chunk| chunk.stripes().iter().any(|stripe| passes(chunk, stripe, devid, total_bytes)),
            Chunk::profile,
            |chunk, stripe| passes(chunk, stripe, devid, total_bytes),
        )?;
        let usage = manager.space().usage(SpaceKind::Metadata);
        if usage.taken() + usage.global_reserve > usage.total + usage.unallocated {
            let len_bytes = usage.global_reserve;
            return Err(Error::NoSpace { kind: SpaceKind::Metadata, len_bytes });
        }
        self.change_device(devid, |item| item.total_bytes = total_bytes.into())?;
        limited.end();
        Ok(())
    }
}

/// A device that is used as if it had another size, until this is dropped.
pub(super) struct Limited<'m> {
    manager: &'m TransactionManager,
    devid: u64,
    before: u64,
}

impl<'m> Limited<'m> {
    pub(super) fn new(manager: &'m TransactionManager, devid: u64, total_bytes: u64) -> Self {
        let mut before = total_bytes;
        manager.space().change_devices(|devices| {
            devices.change(devid, |device| {
                before = std::mem::replace(&mut device.total_bytes, total_bytes);
            });
        });
        Self { manager, devid, before }
    }

    /// It has that size.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        self.manager.space().change_devices(|devices| {
            devices.change(self.devid, |device| device.total_bytes = self.before);
        });
    }
}
