//! States that stay readable while the file system goes on changing.

use std::sync::Arc;

use larder_device::Device;

use crate::error::Result;
use crate::filesystem::handle::Filesystem;

impl Filesystem {
    /// Commits, and returns devices that stay in the state of that commit, while this file system
    /// goes on changing. A file system that is opened on them for reading can be checked and
    /// [counted](Self::accounting). Devices that are missing are not among them.
    ///
    /// As long as one of the devices exists, space that is freed meanwhile cannot be used. If a
    /// writer needs it, the state is given up, and later reads from the devices fail: what was read
    /// without an error is what the commit had. Data of files that are written in place is as it is
    /// at the time.
    ///
    /// A file system that is open for reading changes nothing: these are its devices.
    pub fn keep_state(&self) -> Result<Vec<Arc<dyn Device>>> {
        match self.try_writer() {
            Some(writer) => Ok(writer.manager().keep_state()?),
            None => {
                let devices = self.volume().devices().iter();
                Ok(devices.filter_map(|device| device.device().cloned()).collect())
            }
        }
    }
}
