//! A durable state that a reader keeps: devices that show it, while the file system goes on
//! changing.
//!
//! # Invariants
//! - Nothing that the state leads to changes while it is kept: its space is withheld
//!   ([`Keeping`]), and only superblocks are overwritten in place. The devices show
//!   those of the state.
//! - A read succeeds only if the state was still kept after it. So a reader that met no error has
//!   seen the state and nothing else.
//! - Data that is written in place (NODATACOW, preallocated extents) is as it is at the time.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use larder_device::{Device, DeviceError, KeptState, Operation, StateEnd};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};

use super::TransactionManager;
use crate::error::Result;
use crate::space::Keeping;

/// Why a state ends before its readers.
const GIVEN_UP: &str = "its state was given up, because programs needed the space that this kept";

/// A device as it was in the state.
struct KeptDevice {
    device: Arc<dyn Device>,
    /// Superblocks of the state, by their offsets.
    superblocks: Vec<(u64, Box<[u8; SUPERBLOCK_SIZE]>)>,
    keeping: Arc<Keeping>,
    end: StateEnd,
}

impl TransactionManager {
    /// Commits, and keeps the state of that commit for a reader, with the devices that are not
    /// missing. It ends when a writer needs its space.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](super::Handle).
    pub fn keep_state(&self) -> Result<KeptState> {
        // Neither a commit nor a log is written meanwhile.
        let mut logs = self.lock_committing();
        self.commit_locked(&mut logs)?;
        let end = StateEnd::default();
        let keeping = Arc::new(Keeping::new(self.space()));
        let devices = self.volume().devices();
        let present = devices.iter().filter_map(|device| device.device());
        let kept = present.map(|device| KeptDevice {
            device: device.clone(),
            superblocks: superblocks_of(&**device),
            keeping: keeping.clone(),
            end: end.clone(),
        });
        let kept = kept.map(|kept| Arc::new(kept) as Arc<dyn Device>).collect();
        Ok(KeptState::new(kept, end))
    }
}

/// The copies of the superblock on a device that can be read.
fn superblocks_of(device: &dyn Device) -> Vec<(u64, Box<[u8; SUPERBLOCK_SIZE]>)> {
    let read = |offset| {
        let mut copy = Box::new([0; SUPERBLOCK_SIZE]);
        device.read_at(&mut copy[..], offset).ok().map(|()| (offset, copy))
    };
    OFFSETS.iter().filter_map(|offset| read(offset.0)).collect()
}

impl Device for KeptDevice {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.device.read_at(buf, offset)?;
        for (start, copy) in &self.superblocks {
            let end = offset + buf.len() as u64;
            let (from, to) = (offset.max(*start), end.min(start + copy.len() as u64));
            if from < to {
                let copied = &copy[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(copied);
            }
        }
        if self.keeping.is_kept() {
            return Ok(());
        }
        self.end.set(GIVEN_UP);
        let given_up = io::Error::other(GIVEN_UP);
        Err(DeviceError::io(self, Operation::Read, offset, buf.len() as u64, given_up))
    }

    fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> Result<(), DeviceError> {
        Err(self.refusal(Operation::Write))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Err(self.refusal(Operation::Flush))
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Err(self.refusal(Operation::Discard))
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.device.readahead(offset, len_bytes);
    }
}

impl KeptDevice {
    fn refusal(&self, operation: Operation) -> DeviceError {
        DeviceError::ReadOnly { device: self.name().to_owned(), operation }
    }
}

impl fmt::Debug for KeptDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptDevice").field("device", &self.device).finish_non_exhaustive()
    }
}
