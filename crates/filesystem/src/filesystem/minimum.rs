//! Making the file system on a device as small as it can be.

use larder_jobs::JobKind;
use larder_transaction::{DeviceProgress, Moved};

use crate::error::Result;
use crate::handle::filesystem::Filesystem;

impl Filesystem {
    /// Makes the file system on a device as small as it can be: content moves together and down, and
    /// so does what other devices have of the same block groups. Without a free space tree, what is
    /// free between files stays. The device itself keeps its length. Returns the size, and what moved. It is a [job](crate::Jobs), and other threads may
    /// use the file system meanwhile. Calls `tell` in this thread with the progress.
    ///
    /// # Errors
    /// If a device is missing or fails. What was cut and moved before stays so.
    pub fn minimize_device(
        &self,
        devid: u64,
        tell: &dyn Fn(DeviceProgress),
    ) -> Result<(u64, Moved)> {
        self.as_job(JobKind::ResizeDevice { device: devid }, tell, |manager, tell| {
            manager.minimize_device(devid, tell)
        })
    }
}
