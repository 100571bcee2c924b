//! The health of an open file system: its last commit, its devices and their errors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use larder_format::objectid::{DEV_STATS, DEV_TREE};
use larder_format::{ItemType, Key, Uuid};
use larder_volume::{DeviceErrors as Errors, VolumeDevice};

use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;

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
    /// Why requests of a device wait at this time, if any does.
    pub waits: Option<String>,
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

/// A device of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its id in the file system.
    pub id: u64,
    /// Its UUID.
    pub uuid: Uuid,
    /// The path or name that it was opened under; `None` if it is missing.
    pub name: Option<String>,
    /// Bytes of it that the file system may use.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub allocated_bytes: u64,
    /// Whether it missed commits, or refuses writes, and has not been brought up to date: opening for
    /// writing does that, and [`Filesystem::bring_up_to_date`].
    pub is_stale: bool,
    /// Whether it belongs to the seed that this file system grew from.
    pub is_seed: bool,
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
        let made_read_only = self.aborted().map(|aborted| MadeReadOnly {
            since: aborted.since,
            reason: aborted.reason.to_string(),
        });
        Health {
            generation: self.generation(),
            committed_at: self.committed_at(),
            made_read_only,
            waits: self.volume().trouble().map(|trouble| trouble.why),
            healed_copies: self.volume().stats().healed,
        }
    }

    /// Its devices in the order of their ids, including missing ones.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let chunks = self.try_writer().map(|writer| writer.manager().space().device_bytes_used());
        let allocated: BTreeMap<u64, u64> = chunks.into_iter().flatten().collect();
        let committed = |device: &VolumeDevice| device.dev_item().bytes_used.get();
        let info = |device: &Arc<VolumeDevice>| DeviceInfo {
            is_stale: device.is_stale(),
            is_seed: device.is_seed(),
            ..DeviceInfo::new(
                device.devid(),
                device.uuid(),
                device.device().map(|device| device.name().to_owned()),
                device.dev_item().total_bytes.get(),
                allocated.get(&device.devid()).copied().unwrap_or_else(|| committed(device)),
            )
        };
        self.volume().devices().iter().map(info).collect()
    }

    /// The uuid of the file system that a device belongs to, which for a seed is another one. `None`
    /// if there is no such device.
    #[doc(hidden)]
    pub fn filesystem_of_device(&self, id: u64) -> Option<Uuid> {
        self.volume().device(id).map(|device| device.dev_item().fsid())
    }

    /// The error counts of each device, in the order of their ids.
    pub fn device_errors(&self) -> Result<Vec<DeviceErrors>> {
        if !self.volume().is_writable() {
            let tree = self.tree(DEV_TREE)?;
            for device in self.volume().devices().iter() {
                let key = Key::new(DEV_STATS, ItemType::PERSISTENT_ITEM, device.devid());
                let earlier = tree.get_with(key, Errors::of_item).map_err(Error::from)?;
                device.set_earlier_errors(earlier.unwrap_or_default());
            }
        }
        let devices = self.volume().devices();
        let errors = devices.iter().map(|device| (device.devid(), device.errors()));
        Ok(errors.map(|(devid, errors)| DeviceErrors::new(devid, errors)).collect())
    }

    /// Resets the error counts of a device. Returns the old counts, or `None` if there is no such
    /// device.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) in a file system that is open for
    /// reading.
    pub fn reset_device_errors(&self, id: u64) -> Result<Option<DeviceErrors>> {
        if !self.volume().is_writable() {
            return Err(Error::NotWritable);
        }
        let device = self.volume().device(id);
        Ok(device.map(|device| DeviceErrors::new(id, device.reset_errors())))
    }
}

impl DeviceInfo {
    /// A device that missed no commits and belongs to no seed.
    #[doc(hidden)]
    pub fn new(
        id: u64,
        uuid: Uuid,
        name: Option<String>,
        total_bytes: u64,
        allocated_bytes: u64,
    ) -> Self {
        Self { id, uuid, name, total_bytes, allocated_bytes, is_stale: false, is_seed: false }
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
