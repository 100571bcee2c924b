//! Adding a device.

use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::Device;
use larder_format::Uuid;
use larder_format::item::DevItem;
use larder_format::superblock::DEVICE_RESERVED_BYTES;
use larder_volume::VolumeDevice;
use larder_volume::layout::DeviceSpace;
use zerocopy::{FromZeros, IntoBytes};

use super::{DeviceWork, ITEMS_PER_DEVICE, device_key};
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::space::Priority;

impl TransactionManager {
    /// Adds a device, whose content is lost, and commits. New chunks may lie there from now on.
    /// Returns its id.
    ///
    /// # Errors
    /// If it is too small for any chunk.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn add_device(&self, device: Arc<dyn Device>, uuid: Uuid) -> Result<u64> {
        let work = DeviceWork::begin(self, &|_| ControlFlow::Continue(()))?;
        let sectorsize = self.volume().sectorsize();
        let total_bytes = device.len_bytes() - device.len_bytes() % u64::from(sectorsize);
        if total_bytes < 2 * DEVICE_RESERVED_BYTES {
            let reason = format!("{}: {total_bytes} bytes are too few for a device", device.name());
            return Err(Error::Devices(reason));
        }
        let devices = self.volume().devices();
        let devid = devices.iter().map(|device| device.devid()).max().unwrap_or_default() + 1;
        let item = DevItem {
            devid: devid.into(),
            total_bytes: total_bytes.into(),
            io_align: sectorsize.into(),
            io_width: sectorsize.into(),
            sector_size: sectorsize.into(),
            uuid: *uuid.as_bytes(),
            fsid: *self.superblock().fsid().as_bytes(),
            ..DevItem::new_zeroed()
        };
        let added = VolumeDevice::new(item, device);
        // Nothing fails between the device's first superblock and the commit that counts it, except
        // what aborts.
        let handle = self.start(ITEMS_PER_DEVICE, Priority::Normal)?;
        added.introduce(&self.volume().superblock())?;
        let inserted = self
            .bookkeeping
            .edit_devices(|trees| trees.chunk_tree.insert(device_key(devid), item.as_bytes()));
        inserted.inspect_err(|error| self.abort(error.clone()))?;
        self.volume().add_device(added);
        self.space().change_devices(|devices| {
            devices.add(DeviceSpace::new(devid, uuid, total_bytes));
        });
        work.set_superblock_devices();
        handle.end()?;
        self.commit()?;
        Ok(devid)
    }
}
