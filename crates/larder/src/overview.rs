//! What both an open and a mounted file system can tell about themselves.

use std::ffi::OsString;
use std::path::PathBuf;

use larder_filesystem::{FilePlace, QuotaGroup, SubvolumeInfo};

use crate::{DeviceInfo, Error, Filesystem, Result, Space, Uuid};

/// A file system as a whole: one that is open here, or one that is
/// [mounted](crate::MountedFilesystem).
pub trait Overview {
    /// The label, empty if it has none.
    fn label(&self) -> Result<OsString>;

    /// Its UUID.
    fn uuid(&self) -> Result<Uuid>;

    /// Its devices in the order of their ids, including missing ones.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// How much space is allocated for each purpose, and how much of that is used.
    fn space(&self) -> Result<Vec<Space>>;

    /// Bytes that extents use on all block groups together.
    fn used_bytes(&self) -> Result<u64>;

    /// All subvolumes in the order of their ids, including the top level and those that are being
    /// deleted.
    fn subvolumes(&self) -> Result<Box<dyn Iterator<Item = Result<SubvolumeInfo>> + '_>>;

    /// The path of a subvolume from the top level, without a slash at either end.
    fn subvolume_path(&self, id: u64) -> Result<PathBuf>;

    /// Id of the subvolume that a mount shows by default.
    fn default_subvolume_id(&self) -> Result<u64>;

    /// The counters of a quota group; `None` without quotas or without the group.
    fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>>;

    /// The places in files that refer to the data at a logical address; see
    /// [`Filesystem::places_of`].
    fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>>;

    /// All paths of an inode from the root of its subvolume, without a slash at either end.
    fn inode_paths(&self, subvolume: u64, inode: u64) -> Result<Vec<PathBuf>>;

    /// Information about the subvolume `id`.
    fn subvolume_info(&self, id: u64) -> Result<SubvolumeInfo> {
        for info in self.subvolumes()? {
            match info {
                Ok(info) if info.id == id && !info.is_being_deleted => return Ok(info),
                _ => {}
            }
        }
        Err(Error::NoSuchSubvolume(id))
    }
}

impl Overview for Filesystem {
    fn label(&self) -> Result<OsString> {
        Ok(self.label())
    }

    fn uuid(&self) -> Result<Uuid> {
        Ok(self.uuid())
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(self.devices())
    }

    fn space(&self) -> Result<Vec<Space>> {
        self.space()
    }

    fn used_bytes(&self) -> Result<u64> {
        Ok(self.used_bytes())
    }

    fn subvolumes(&self) -> Result<Box<dyn Iterator<Item = Result<SubvolumeInfo>> + '_>> {
        Ok(Box::new(self.subvolumes()))
    }

    fn subvolume_path(&self, id: u64) -> Result<PathBuf> {
        self.subvolume_path(id)
    }

    fn default_subvolume_id(&self) -> Result<u64> {
        self.default_subvolume_id()
    }

    fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>> {
        self.quota_group(id)
    }

    fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>> {
        self.places_of(logical, of_whole_extent)
    }

    fn inode_paths(&self, subvolume: u64, inode: u64) -> Result<Vec<PathBuf>> {
        self.subvolume_by_id(subvolume)?.inode(inode)?.paths()
    }

    fn subvolume_info(&self, id: u64) -> Result<SubvolumeInfo> {
        self.subvolume_by_id(id)?.info()
    }
}
