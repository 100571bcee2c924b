//! How an open file system is: what it committed last, what went wrong.

use std::time::SystemTime;

use larder_format::objectid::{DEV_STATS, DEV_TREE};
use larder_format::{ItemType, Key};
use larder_volume::DeviceErrors as Errors;

use crate::{Filesystem, Result};

/// How a file system is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The transaction of the last commit.
    pub generation: u64,
    /// When that was, if it was since the file system was opened.
    pub committed_at: Option<SystemTime>,
    /// An error that made it read-only.
    pub made_read_only: Option<MadeReadOnly>,
    /// Bad copies that were overwritten with good content since it was opened.
    pub healed_copies: u64,
}

/// Why a file system can only be read, and since when.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MadeReadOnly {
    /// Since when.
    pub since: SystemTime,
    /// The error.
    pub reason: String,
}

/// How often a device failed since that was last set to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceErrors {
    /// The device's id in the file system.
    pub id: u64,
    /// Writes that failed.
    pub writes: u64,
    /// Reads that failed.
    pub reads: u64,
    /// Flushes that failed.
    pub flushes: u64,
    /// Tree blocks and sectors of data that were not what they should be.
    pub corruptions: u64,
    /// Tree blocks of another generation than expected.
    pub generations: u64,
}

impl Filesystem {
    /// How it is.
    pub fn health(&self) -> Health {
        let inner = self.inner();
        let made_read_only = inner.aborted().map(|aborted| MadeReadOnly {
            since: aborted.since,
            reason: aborted.reason.to_string(),
        });
        Health {
            generation: self.generation(),
            committed_at: inner.committed_at(),
            made_read_only,
            healed_copies: inner.volume().stats().healed,
        }
    }

    /// How often each device failed, in the order of their ids.
    pub fn device_errors(&self) -> Result<Vec<DeviceErrors>> {
        let inner = self.inner();
        if !self.inner().volume().is_writable() {
            let tree = inner.tree(DEV_TREE)?;
            for device in inner.volume().devices() {
                let key = Key::new(DEV_STATS, ItemType::PERSISTENT_ITEM, device.devid());
                let earlier =
                    tree.get_with(key, Errors::of_item).map_err(larder_filesystem::Error::from)?;
                device.set_earlier_errors(earlier.unwrap_or_default());
            }
        }
        let errors = |device: &larder_volume::VolumeDevice| {
            DeviceErrors::new(device.devid(), device.errors())
        };
        Ok(inner.volume().devices().iter().map(errors).collect())
    }

    /// Counts the errors of a device from zero again. Returns what they were, `None` if there is no
    /// such device.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) in a file system that is open for
    /// reading.
    pub fn reset_device_errors(&self, id: u64) -> Result<Option<DeviceErrors>> {
        if !self.inner().volume().is_writable() {
            return Err(larder_filesystem::Error::NotWritable.into());
        }
        let device = self.inner().volume().device(id);
        Ok(device.map(|device| DeviceErrors::new(id, device.reset_errors())))
    }
}

impl DeviceErrors {
    fn new(id: u64, errors: Errors) -> Self {
        let Errors { writes, reads, flushes, corruptions, generations } = errors;
        Self { id, writes, reads, flushes, corruptions, generations }
    }

    /// Whether there are none.
    pub fn is_zero(&self) -> bool {
        *self == Self::new(self.id, Errors::default())
    }
}
