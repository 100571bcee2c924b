//! Devices that come, go and change their sizes, and profiles that change.

use std::sync::Arc;

use larder_device::Device;
use larder_format::Uuid;
use larder_transaction::{Conversion, DeviceProgress, Moved};

use crate::error::Result;
use crate::handle::filesystem::Filesystem;

impl Filesystem {
    /// Adds a device, whose content is lost, and commits. New block groups may lie there from now on;
    /// those that exist stay where they are. Returns its id.
    ///
    /// # Errors
    /// If it is too small.
    pub fn add_device(&self, device: Arc<dyn Device>) -> Result<u64> {
        Ok(self.writer()?.manager().add_device(device, Uuid::new_v4())?)
    }

    /// Moves everything on a device, which may be missing, to the others, and removes it: its
    /// superblocks are overwritten. Each block group that moves is one commit, so that the work can
    /// be ended at any time and begun again. Other threads may use the file system meanwhile. Calls
    /// `tell` in this thread with the progress.
    ///
    /// # Errors
    /// With [`NoSpace`](crate::ErrorKind::NoSpace) if the others have no room for a block group. The
    /// device stays then.
    pub fn remove_device(&self, devid: u64, tell: &dyn Fn(DeviceProgress)) -> Result<Moved> {
        Ok(self.writer()?.manager().remove_device(devid, tell)?)
    }

    /// Sets how many bytes of a device the file system uses, in whole sectors. What lies after the
    /// new end is moved before, as [`remove_device`](Self::remove_device) does. The device itself
    /// keeps its length.
    ///
    /// # Errors
    /// With [`NoSpace`](crate::ErrorKind::NoSpace) if there is too little room before the new end.
    /// The size stays as it was then.
    pub fn resize_device(
        &self,
        devid: u64,
        total_bytes: u64,
        tell: &dyn Fn(DeviceProgress),
    ) -> Result<Moved> {
        Ok(self.writer()?.manager().resize_device(devid, total_bytes, tell)?)
    }

    /// Gives block groups other profiles, as [`remove_device`](Self::remove_device) moves them.
    ///
    /// # Errors
    /// With [`NoSpace`](crate::ErrorKind::NoSpace) if the devices have no room for a block group. Those
    /// that were converted before stay so.
    pub fn convert(&self, wanted: Conversion, tell: &dyn Fn(DeviceProgress)) -> Result<Moved> {
        Ok(self.writer()?.manager().convert(wanted, tell)?)
    }
}
