//! The health of an open file system: its last commit, and errors.

use std::time::SystemTime;

use larder_format::objectid::{DEV_STATS, DEV_TREE};
use larder_format::{ItemType, Key};
use larder_volume::DeviceErrors as Errors;

use crate::{Error, Filesystem, Result};

/// The health of a file system.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The transaction of the last commit.
    pub generation: u64,
    /// When the last commit was made; none if that was before the file system was opened.
    pub committed_at: Option<SystemTime>,
    /// An error that made it read-only.
    pub made_read_only: Option<MadeReadOnly>,
    /// Bad copies that were overwritten with good content since it was opened.
    pub healed_copies: u64,
}

/// Why a file system became read-only, and when.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MadeReadOnly {
    /// When it became read-only.
    pub since: SystemTime,
    /// The error.
    pub reason: String,
}

/// The error counts of a device since they were last reset.
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
    /// Tree blocks and sectors of data with wrong content.
    pub corruptions: u64,
    /// Tree blocks of another generation than expected.
    pub generations: u64,
}

impl Filesystem {
    /// Its health.
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

    /// The error counts of each device, in the order of their ids.
    pub fn device_errors(&self) -> Result<Vec<DeviceErrors>> {
        let inner = self.inner();
        if !self.inner().volume().is_writable() {
            let tree = inner.tree(DEV_TREE)?;
            for device in inner.volume().devices() {
                let key = Key::new(DEV_STATS, ItemType::PERSISTENT_ITEM, device.devid());
                let earlier = tree.get_with(key, Errors::of_item).map_err(Error::from)?;
                device.set_earlier_errors(earlier.unwrap_or_default());
            }
        }
        let errors = |device: &larder_volume::VolumeDevice| {
            DeviceErrors::new(device.devid(), device.errors())
        };
        Ok(inner.volume().devices().iter().map(errors).collect())
    }

    /// Resets the error counts of a device. Returns the old counts, or `None` if there is no such
    /// device.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) in a file system that is open for
    /// reading.
    pub fn reset_device_errors(&self, id: u64) -> Result<Option<DeviceErrors>> {
        if !self.inner().volume().is_writable() {
            return Err(Error::NotWritable);
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

    /// Whether all counts are zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::new(self.id, Errors::default())
    }
}
