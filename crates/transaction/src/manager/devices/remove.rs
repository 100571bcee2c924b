//! Removing a device.

use larder_format::objectid::DEV_STATS;
use larder_format::{ItemType, Key};
use larder_volume::Chunk;

use super::{DeviceWork, ITEMS_PER_DEVICE, Tell, device_key, no_device};
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::space::Priority;

impl TransactionManager {
    /// Moves everything on a device to the others, and removes it: its superblocks are overwritten.
    /// Calls `tell` in this thread with the progress. A device that is missing can be removed too.
    ///
    /// # Errors
    /// [`Error::NoPlace`] if the others have no room for a block group. What was moved before stays
    /// where it is then, and the device stays one of the file system's.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn remove_device(&self, devid: u64, tell: &Tell<'_>) -> Result<Moved> {
        let mut work = DeviceWork::begin(self, tell)?;
        let volume = self.volume();
        let device = volume.device(devid).ok_or_else(|| no_device(devid))?;
        let others = volume.devices().iter().filter(|other| other.devid() != devid).count();
        if others == 0 {
            return Err(Error::Devices("it is the only device of the file system".into()));
        }
        let avoided = Avoided::new(self, devid);
        work.move_chunks(
            |chunk| chunk.stripes().iter().any(|stripe| stripe.devid == devid),
            Chunk::profile,
            |_, stripe| stripe.devid == devid,
        )?;
        let handle = self.start(ITEMS_PER_DEVICE, Priority::Cleaning)?;
        let removed = self.bookkeeping.edit_devices(|trees| {
            trees.chunk_tree.remove(device_key(devid))?;
            let stats = Key::new(DEV_STATS, ItemType::PERSISTENT_ITEM, devid);
            if trees.dev_tree.get(stats)?.is_some() {
                trees.dev_tree.remove(stats)?;
            }
            Ok(())
        });
        removed.inspect_err(|error| self.abort(error.clone()))?;
        volume.remove_device(devid);
        self.space().change_devices(|devices| devices.remove(devid));
        avoided.end();
        work.set_superblock_devices();
        handle.end()?;
        self.commit()?;
        let was_absent = device.is_missing() || device.is_left_out();
        match device.forget_superblocks() {
            Err(error) if was_absent => tracing::warn!(
                "{error}: device {devid} is removed, and still has superblocks of the file system: \
                 do not use it for others before it is erased (wipefs --all)"
            ),
            forgotten => forgotten?,
        }
        if was_absent {
            work.complete_after_loss()?;
        }
        Ok(work.moved)
    }
}

/// A device that gets no new chunks, until this is dropped.
struct Avoided<'m> {
    manager: &'m TransactionManager,
    devid: u64,
}

impl<'m> Avoided<'m> {
    fn new(manager: &'m TransactionManager, devid: u64) -> Self {
        manager.space().change_devices(|devices| {
            devices.change(devid, |device| device.is_usable = false);
        });
        Self { manager, devid }
    }

    /// The device is gone.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Avoided<'_> {
    fn drop(&mut self) {
        let device = self.manager.volume().device(self.devid);
        let is_usable = device.is_some_and(|device| device.takes_chunks());
        self.manager.space().change_devices(|devices| {
            devices.change(self.devid, |device| device.is_usable = is_usable);
        });
    }
}
