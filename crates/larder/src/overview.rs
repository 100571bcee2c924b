//! What both an open and a mounted file system can tell about themselves.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use larder_filesystem::{Capacity, FilePlace, GlobalReserve, QuotaGroup, SubvolumeInfo};

use crate::{
    BalanceItem, ChosenGroup, DeviceInfo, Error, Filesystem, Key, Result, Space, TreeItem, Uuid,
};

/// Items of a tree: their keys and their content.
pub type KeyedItems<'a> = Box<dyn Iterator<Item = Result<(Key, Vec<u8>)>> + 'a>;

/// A file system as a whole: one that is open here, or one that is
/// [mounted](crate::MountedFilesystem).
pub trait Overview {
    /// Whether it is mounted, and not open here.
    fn is_mounted(&self) -> bool;

    /// As [`Filesystem::label`].
    fn label(&self) -> Result<OsString>;

    /// As [`Filesystem::uuid`].
    fn uuid(&self) -> Result<Uuid>;

    /// As [`Filesystem::devices`].
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// As [`Filesystem::space`].
    fn space(&self) -> Result<Vec<Space>>;

    /// As [`Filesystem::plan_balance`].
    fn plan_balance(&self, wanted: &BalanceItem) -> Result<Vec<ChosenGroup>>;

    /// As [`Filesystem::used_bytes`].
    fn used_bytes(&self) -> Result<u64>;

    /// As [`Filesystem::global_reserve`].
    fn global_reserve(&self) -> Result<Option<GlobalReserve>>;

    /// As [`Filesystem::capacity`].
    fn capacity(&self) -> Result<Capacity>;

    /// As [`Filesystem::subvolumes`].
    fn subvolumes(&self) -> Result<Box<dyn Iterator<Item = Result<SubvolumeInfo>> + '_>>;

    /// As [`Filesystem::subvolume_path`].
    fn subvolume_path(&self, id: u64) -> Result<PathBuf>;

    /// As [`Filesystem::default_subvolume_id`].
    fn default_subvolume_id(&self) -> Result<u64>;

    /// As [`Filesystem::quota_group`].
    fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>>;

    /// As [`Filesystem::places_of`].
    fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>>;

    /// The items of the tree with this id whose keys lie in `range` and whose leaves the transaction
    /// `since` or a later one wrote, in order.
    fn items(&self, tree: u64, range: RangeInclusive<Key>, since: u64) -> Result<KeyedItems<'_>>;

    /// The paths of an inode, as [`Inode::paths`](crate::Inode::paths) has them.
    fn inode_paths(&self, subvolume: u64, inode: u64) -> Result<Vec<PathBuf>>;

    /// One path of an inode.
    fn inode_path(&self, subvolume: u64, inode: u64) -> Result<PathBuf>;

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
    fn is_mounted(&self) -> bool {
        false
    }

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

    fn plan_balance(&self, wanted: &BalanceItem) -> Result<Vec<ChosenGroup>> {
        self.plan_balance(wanted)
    }

    fn used_bytes(&self) -> Result<u64> {
        Ok(self.used_bytes())
    }

    fn global_reserve(&self) -> Result<Option<GlobalReserve>> {
        Ok(self.global_reserve())
    }

    fn capacity(&self) -> Result<Capacity> {
        self.capacity()
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

    fn items(&self, tree: u64, range: RangeInclusive<Key>, since: u64) -> Result<KeyedItems<'_>> {
        let is_old = move |item: &TreeItem| item.generation() < since;
        let items = self.tree_items(tree, range)?;
        let items = items.filter(move |item| !item.as_ref().is_ok_and(is_old));
        Ok(Box::new(items.map(|item| item.map(|item| (item.key(), item.data().to_vec())))))
    }

    fn inode_paths(&self, subvolume: u64, inode: u64) -> Result<Vec<PathBuf>> {
        self.subvolume_by_id(subvolume)?.inode(inode)?.paths()
    }

    fn inode_path(&self, subvolume: u64, inode: u64) -> Result<PathBuf> {
        let paths = self.inode_paths(subvolume, inode)?;
        paths.into_iter().next().ok_or(Error::NotFound)
    }

    fn subvolume_info(&self, id: u64) -> Result<SubvolumeInfo> {
        self.subvolume_by_id(id)?.info()
    }
}
