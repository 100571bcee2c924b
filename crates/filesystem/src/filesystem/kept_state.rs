//! States that stay readable while the file system goes on changing.

use larder_device::{KeptState, StateEnd};

use crate::error::Result;
use crate::handle::filesystem::Filesystem;

impl Filesystem {
    /// Commits, and keeps the state of that commit, while this file system goes on changing. A file
    /// system that is opened on its devices for reading can be checked and counted. Devices that are missing are not among them.
    ///
    /// As long as one of the devices exists, space that is freed meanwhile cannot be used. If a
    /// writer needs it, the state [ends](KeptState::ended), and later reads from the devices fail.
    /// Data of files that are written in place is as it is at the time.
    ///
    /// In a file system that is open for reading nothing changes, and the state does not end.
    pub fn keep_state(&self) -> Result<KeptState> {
        match self.try_writer() {
            Some(writer) => Ok(writer.manager().keep_state()?),
            None => {
                let devices = self.volume().devices();
                let present = devices.iter().filter_map(|device| device.device().cloned());
                Ok(KeptState::new(present.collect(), StateEnd::default()))
            }
        }
    }
}
