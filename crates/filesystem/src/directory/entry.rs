//! Entries of a directory.

use std::ffi::OsStr;
use std::path::Path;

use larder_format::item;
use larder_format::{FormatError, ItemType, objectid};
use larder_platform::OsStrExt;

use crate::error::Result;
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::item::links::check_name;
use crate::item::metadata::FileType;

/// An entry of a directory (`DIR_INDEX`).
#[derive(Clone, Debug)]
pub struct Entry {
    pub(super) directory: Directory,
    pub(super) found: DirEntry,
}

/// What an index item says.
#[derive(Clone, Debug)]
pub(crate) struct DirEntry {
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) target: Target,
    pub(crate) file_type: FileType,
}

/// What a directory entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// The inode of this number in the same subvolume.
    Inode(u64),
    /// The root of the subvolume with this id.
    Subvolume(u64),
}

impl Entry {
    /// The name.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.found.name)
    }

    /// Its position in the directory: entries are listed in this order.
    pub fn index(&self) -> u64 {
        self.found.index
    }

    /// The type of its inode.
    pub fn file_type(&self) -> FileType {
        self.found.file_type
    }

    /// The number of its inode. For a subvolume that is the root's.
    pub fn inode_number(&self) -> u64 {
        match self.found.target {
            Target::Inode(number) => number,
            Target::Subvolume(_) => objectid::FIRST_FREE,
        }
    }

    /// The id of the subvolume that the directory belongs to.
    pub fn directory_subvolume_id(&self) -> u64 {
        self.directory.subvolume_id()
    }

    /// The id of the subvolume that it leads to, if it leads to one.
    pub fn subvolume_id(&self) -> Option<u64> {
        match self.found.target {
            Target::Inode(_) => None,
            Target::Subvolume(id) => Some(id),
        }
    }

    /// Opens its inode.
    pub fn open(&self) -> Result<Inode> {
        let opened = self.directory.open_entry(&self.found);
        opened.map_err(|error| error.about(Path::new(self.name())))
    }
}

impl DirEntry {
    pub(super) fn from_item(index: u64, entry: &item::DirEntry<'_>) -> Result<Self, FormatError> {
        check_name("directory entry", entry.name)?;
        let target = Target::from_item(entry)?;
        let file_type = FileType::from_format(entry.file_type())
            .ok_or_else(|| FormatError::invalid("directory entry", "its file type is none"))?;
        Ok(Self { index, name: entry.name.to_vec(), target, file_type })
    }
}

impl Target {
    pub(super) fn from_item(entry: &item::DirEntry<'_>) -> Result<Self, FormatError> {
        let location = entry.header.location.get();
        match location.item_type {
            ItemType::INODE_ITEM => Ok(Self::Inode(location.objectid)),
            ItemType::ROOT_ITEM => Ok(Self::Subvolume(location.objectid)),
            _ => Err(FormatError::invalid(
                "directory entry",
                "it leads to neither an inode nor a subvolume",
            )),
        }
    }
}
