//! Devices that come, go and change their sizes, and profiles that change.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::Device;
use larder_format::Uuid;
use larder_jobs::JobKind;
use larder_transaction::{
    Conversion, DeviceProgress, Error as EngineError, Moved, Tell, TransactionManager,
};

use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;

impl Filesystem {
    /// Adds a device, whose content is lost, and commits. New block groups may lie there from now on;
    /// those that exist stay where they are. Returns its id. A balance that pauses, for want of room
    /// perhaps, does not exclude it.
    ///
    /// # Errors
    /// If it is too small; with [`InUse`](crate::ErrorKind::InUse) if other work on devices goes on.
    pub fn add_device(&self, device: Arc<dyn Device>) -> Result<u64> {
        let manager = self.writer()?.manager();
        let _job = self.jobs().begin(JobKind::AddDevice, 0)?;
        Ok(manager.add_device(device, Uuid::new_v4())?)
    }

    /// How many bytes a device has, whether the file system uses them or not. `None` if it is missing,
    /// or there is none of this id.
    pub fn device_room(&self, devid: u64) -> Option<u64> {
        self.volume().device(devid)?.device().map(|device| device.len_bytes())
    }

    /// Moves everything on a device, which may be missing, to the others, and removes it: its
    /// superblocks are overwritten. Each block group that moves is one commit, so that the work can
    /// be ended at any time and begun again. It is a [job](crate::Jobs). Other threads may use the
    /// file system meanwhile. Calls `tell` in this thread with the progress.
    ///
    /// # Errors
    /// With [`NoSpace`](crate::ErrorKind::NoSpace) if the others have no room for a block group, and
    /// with [`Io`](crate::ErrorKind::Io) if data without checksums cannot be read. The device stays
    /// then.
    pub fn remove_device(&self, devid: u64, tell: &dyn Fn(DeviceProgress)) -> Result<Moved> {
        self.as_job(JobKind::RemoveDevice { device: devid }, tell, |manager, tell| {
            manager.remove_device(devid, tell)
        })
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
        self.as_job(JobKind::ResizeDevice { device: devid }, tell, |manager, tell| {
            manager.resize_device(devid, total_bytes, tell)
        })
    }

    /// Gives block groups other profiles, as [`remove_device`](Self::remove_device) moves them.
    ///
    /// # Errors
    /// With [`NoSpace`](crate::ErrorKind::NoSpace) if the devices have no room for a block group. Those
    /// that were converted before stay so.
    pub fn convert(&self, wanted: Conversion, tell: &dyn Fn(DeviceProgress)) -> Result<Moved> {
        self.as_job(JobKind::Convert, tell, |manager, tell| manager.convert(wanted, tell))
    }

    /// Does work on devices as a [job](larder_jobs::Job), which may be cancelled.
    pub(crate) fn as_job<T>(
        &self,
        kind: JobKind,
        tell: &dyn Fn(DeviceProgress),
        work: impl FnOnce(&TransactionManager, &Tell<'_>) -> Result<T, EngineError>,
    ) -> Result<T> {
        let writer = self.writer()?;
        let job = self.jobs().begin(kind, 0)?;
        if writer.manager().balance_item()?.is_some() {
            return Err(Error::PausedBalance);
        }
        let done = Cell::new(0);
        let went_on = |now: DeviceProgress| {
            let more = now.done_bytes - done.replace(now.done_bytes);
            job.expect(now.total_bytes);
            job.advance(more);
            tell(now);
            match job.step(more) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        Ok(work(writer.manager(), &went_on)?)
    }
}
