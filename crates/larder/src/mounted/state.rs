//! States of mounted file systems that stay readable while the file systems go on changing.

use std::io::{self, IoSlice};
use std::sync::Arc;

use larder_device::{Device, DeviceError, KeptState, Operation, StateEnd};
use larder_ioctl::channel::{Channel, DeviceRange, frame};
use larder_platform::errno::in_words;
use parking_lot::Mutex;

use super::MountedFilesystem;
use super::filesystem::of_mounted;
use crate::Result;

/// A device of a kept state, read through the server of the mount.
#[derive(Debug)]
struct KeptDevice {
    server: Arc<Mutex<Channel>>,
    index: u64,
    name: String,
    len_bytes: u64,
    end: StateEnd,
}

impl MountedFilesystem {
    /// Commits, and keeps the state of that commit, as
    /// [`Filesystem::keep_state`](crate::Filesystem::keep_state) does. The server of the mount reads
    /// the devices, and does so for root and for the user who mounted. The state also ends with the
    /// mount. `None` on a mount by the kernel, which keeps no state.
    pub fn keep_state(&self) -> Result<Option<KeptState>> {
        let Some((mut channel, _)) = Channel::of(self.inside()).map_err(of_mounted)? else {
            return Ok(None);
        };
        let devices = channel.keep_state().map_err(of_mounted)?;
        let (server, end) = (Arc::new(Mutex::new(channel)), StateEnd::default());
        let kept = devices.into_iter().zip(0..).map(|(device, index)| {
            let (server, end) = (server.clone(), end.clone());
            let (name, len_bytes) = (device.name, device.len_bytes);
            Arc::new(KeptDevice { server, index, name, len_bytes, end }) as Arc<dyn Device>
        });
        Ok(Some(KeptState::new(kept.collect(), end)))
    }
}

impl KeptDevice {
    fn refusal(&self, operation: Operation) -> DeviceError {
        DeviceError::ReadOnly { device: self.name.clone(), operation }
    }

    fn failure(&self, offset: u64, len: usize, source: io::Error) -> DeviceError {
        DeviceError::io(self, Operation::Read, offset, len as u64, source)
    }
}

impl Device for KeptDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::result::Result<(), DeviceError> {
        let mut at = offset;
        for piece in buf.chunks_mut(frame::MOST_BYTES) {
            let read = self.server.lock().read_kept(self.index, piece, at);
            let read = read.inspect_err(|error| self.end.set(in_words(error))).flatten();
            read.map_err(|error| self.failure(at, piece.len(), error))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> std::result::Result<(), DeviceError> {
        Err(self.refusal(Operation::Write))
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        Err(self.refusal(Operation::Flush))
    }

    fn discard(&self, _: u64, _: u64) -> std::result::Result<(), DeviceError> {
        Err(self.refusal(Operation::Discard))
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        let range = DeviceRange { device: self.index, offset, len_bytes };
        // A read that follows meets the error again.
        let _ = self.server.lock().read_kept_ahead(range);
    }
}
