//! The names of an inode.

use std::ffi::OsString;

use larder_format::item::{InodeExtrefs, InodeRefs, NAME_MAX};
use larder_format::{FormatError, ItemType, Key};

use crate::error::Result;

/// A name of an inode (`INODE_REF`, `INODE_EXTREF`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Inode number of the directory that has the name.
    pub parent: u64,
    /// Index of the name in the directory.
    pub index: u64,
    /// The name.
    pub name: OsString,
}

/// Refuses a name that no directory can have: in a path it would lead elsewhere.
pub(crate) fn check_name(item: &'static str, name: &[u8]) -> Result<(), FormatError> {
    let is_name = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
    if !is_name || matches!(name, b"." | b"..") || name.len() > NAME_MAX {
        return Err(FormatError::invalid(item, "the name is invalid"));
    }
    Ok(())
}

/// Calls `visit` with the parent, index and name of each reference of an `INODE_REF` or
/// `INODE_EXTREF` item.
pub fn links_of_item(
    key: Key,
    bytes: &[u8],
    mut visit: impl FnMut(u64, u64, &[u8]),
) -> Result<(), FormatError> {
    if key.item_type == ItemType::INODE_REF {
        for link in InodeRefs::new(bytes) {
            let link = link?;
            visit(key.offset, link.index, link.name);
        }
        return Ok(());
    }
    for link in InodeExtrefs::new(bytes) {
        let link = link?;
        visit(link.parent, link.index, link.name);
    }
    Ok(())
}
