//! The file system as a whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use larder_filesystem::{QuotaGroup, Stats};
use larder_format::Uuid;
use larder_format::objectid::FS_TREE;

use crate::path;
use crate::{Result, Subvolume, Subvolumes};

/// An open file system. Cloning it is cheap, and all threads may use it.
#[derive(Clone, Debug)]
pub struct Filesystem {
    inner: larder_filesystem::Filesystem,
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
    /// Whether it missed commits, and has not been brought up to date: opening for writing does
    /// that.
    pub is_stale: bool,
    /// Whether it belongs to the seed that this file system grew from.
    pub is_seed: bool,
}

impl Filesystem {
    pub(crate) fn new(inner: larder_filesystem::Filesystem) -> Self {
        Self { inner }
    }

    /// The subvolume whose root is at `path` from the top level; `/` is the top level itself.
    pub fn subvolume(&self, path: impl AsRef<Path>) -> Result<Subvolume> {
        let path = path.as_ref();
        let inode = self.subvolume_by_id(FS_TREE)?.resolve(path)?;
        inode.into_subvolume().map_err(|error| error.about(path))
    }

    /// The subvolume with this id; 5 is the top level.
    pub fn subvolume_by_id(&self, id: u64) -> Result<Subvolume> {
        Ok(Subvolume::new(self.inner.subvolume(id)?))
    }

    /// The subvolume that a mount shows by default.
    pub fn default_subvolume(&self) -> Result<Subvolume> {
        Ok(Subvolume::new(self.inner.default_subvolume()?))
    }

    /// Id of the default subvolume.
    pub fn default_subvolume_id(&self) -> Result<u64> {
        Ok(self.inner.default_subvolume_id()?)
    }

    /// All subvolumes in the order of their ids, including the top level and those that are being
    /// deleted.
    pub fn subvolumes(&self) -> Subvolumes {
        Subvolumes::new(self.inner.subvolumes())
    }

    /// The path of a subvolume from the top level, without a slash at either end: that of the top
    /// level is empty.
    pub fn subvolume_path(&self, id: u64) -> Result<PathBuf> {
        Ok(path::owned(self.inner.subvolume_path(id)?))
    }

    /// The label, empty if it has none.
    pub fn label(&self) -> OsString {
        path::owned_name(self.inner.label())
    }

    /// The UUID that identifies the file system.
    pub fn uuid(&self) -> Uuid {
        self.inner.superblock().fsid()
    }

    /// The UUID in its tree blocks: the same, unless the other was changed.
    pub fn metadata_uuid(&self) -> Uuid {
        self.inner.superblock().metadata_uuid()
    }

    /// The transaction of the last commit.
    pub fn generation(&self) -> u64 {
        self.inner.generation()
    }

    /// Bytes in a sector, the unit of data.
    pub fn sector_bytes(&self) -> u32 {
        self.inner.superblock().sectorsize.get()
    }

    /// Bytes in a tree block.
    pub fn node_bytes(&self) -> u32 {
        self.inner.superblock().nodesize.get()
    }

    /// The checksum of data and trees: its number on disk, and its length in bytes.
    pub fn checksum(&self) -> (u16, u16) {
        let checksum = self.inner.superblock().checksum_type();
        (checksum as u16, checksum.size() as u16)
    }

    /// The feature flags: compatible, compatible for reading only, and incompatible ones.
    pub fn feature_bits(&self) -> (u64, u64, u64) {
        let superblock = self.inner.superblock();
        let (compat_ro, incompat) = (superblock.compat_ro_flags, superblock.incompat_flags);
        (superblock.compat_flags.get(), compat_ro.get(), incompat.get())
    }

    /// Bytes that extents use on all block groups together.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes()
    }

    /// Whether a crash left log trees, which have the files that were fsynced since the last
    /// commit. Reading does not replay them, and shows the last commit.
    pub fn needs_log_replay(&self) -> bool {
        self.inner.needs_log_replay()
    }

    /// Its devices in the order of their ids, including missing ones.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let info = |device: &larder_volume::VolumeDevice| DeviceInfo {
            id: device.devid(),
            uuid: device.uuid(),
            name: device.device().map(|device| device.name().to_owned()),
            total_bytes: device.dev_item().total_bytes.get(),
            allocated_bytes: device.dev_item().bytes_used.get(),
            is_stale: device.is_stale(),
            is_seed: device.is_seed(),
        };
        self.inner.volume().devices().iter().map(info).collect()
    }

    /// The counters of a quota group, as of the last commit if the file system is open for reading.
    /// `None` without quotas or without the group. The group of a subvolume has the subvolume's id.
    pub fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>> {
        Ok(self.inner.quota_group(id)?)
    }

    /// Counters since it was opened: cache, readahead, devices, repaired copies.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    pub(crate) fn inner(&self) -> &larder_filesystem::Filesystem {
        &self.inner
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn handles_are_for_all_threads() {
        fn check<T: Send + Sync>() {}
        check::<crate::Filesystem>();
        check::<crate::Subvolume>();
        check::<crate::File>();
        check::<crate::Directory>();
        check::<crate::Entries>();
        check::<crate::Xattrs>();
        check::<crate::Error>();
    }
}
