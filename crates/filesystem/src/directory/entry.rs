//! Entries of a directory.

use larder_format::item::{self, NAME_MAX};
use larder_format::{FormatError, ItemType};

use crate::inode::metadata::FileType;

/// An entry of a directory (`DIR_INDEX`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Index of the name: entries are listed in its order.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub target: Target,
    /// The type of what it leads to.
    pub file_type: FileType,
}

/// What a directory entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The inode of this number in the same subvolume.
    Inode(u64),
    /// The root of the subvolume with this id.
    Subvolume(u64),
}

impl DirEntry {
    pub(super) fn from_item(index: u64, entry: &item::DirEntry<'_>) -> Result<Self, FormatError> {
        let invalid = |problem: &str| FormatError::invalid("directory entry", problem);
        let name = entry.name;
        let is_name = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
        if !is_name || name == b"." || name == b".." || name.len() > NAME_MAX {
            return Err(invalid("the name is invalid"));
        }
        let target = Target::from_item(entry)?;
        let file_type = FileType::from_format(entry.file_type())
            .ok_or_else(|| invalid("its file type is none"))?;
        Ok(Self { index, name: name.to_vec(), target, file_type })
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
