//! Directory entries, extended attributes, and directories in logs.

use super::inode::check_inode_key;
use super::root::check_root_key;
use super::{Context, Item, Verdict, ensure};
use crate::item::{DirEntries, DirEntry, DirItemHeader, DirLogItem, FileType, NAME_MAX};
use crate::node::{ITEM_HEADER_SIZE, leaf_data_size};
use crate::objectid::FIRST_FREE;
use crate::{ItemType, Key, name_hash};

pub(super) fn check_entries(item: &Item<'_>, context: &Context) -> Verdict {
    item.ensure_follows_its_inode()?;
    for entry in DirEntries::new(item.data) {
        check_entry(item.key, &entry.map_err(|e| e.to_string())?, context)?;
    }
    Ok(())
}

fn check_entry(key: Key, entry: &DirEntry<'_>, context: &Context) -> Verdict {
    check_location(key.item_type, entry.header.location.get())?;
    let number = entry.header.file_type;
    let file_type = FileType::from_disk(number).filter(|kind| *kind != FileType::Unknown);
    ensure(file_type.is_some(), || format!("file type {number}"))?;
    let is_xattr = key.item_type == ItemType::XATTR_ITEM;
    ensure((file_type == Some(FileType::Xattr)) == is_xattr, || {
        format!("an entry of file type {number} under a key of type {}", key.item_type)
    })?;
    let (name, value) = (entry.name, entry.data);
    ensure(name.len() <= NAME_MAX, || format!("a name of {} bytes", name.len()))?;
    ensure(value.is_empty() || is_xattr, || "a value where only attributes have one".into())?;
    let overhead = ITEM_HEADER_SIZE + size_of::<DirItemHeader>();
    ensure(
        name.len() + value.len() + overhead <= leaf_data_size(context.nodesize as usize),
        || format!("a name of {} and a value of {} bytes", name.len(), value.len()),
    )?;
    let hash = (key.item_type != ItemType::DIR_INDEX).then(|| name_hash::dir_name(name));
    ensure(hash.is_none_or(|hash| hash == key.offset), || {
        format!("the name {:?} has another hash", String::from_utf8_lossy(name))
    })
}

/// The target of an entry: an inode of the same tree or a subvolume; none for an attribute.
fn check_location(item_type: ItemType, location: Key) -> Verdict {
    if location.item_type == ItemType::ROOT_ITEM {
        return check_root_key(location, false);
    }
    ensure([ItemType(0), ItemType::INODE_ITEM].contains(&location.item_type), || {
        format!("points at {location}, neither inode nor subvolume")
    })?;
    if item_type == ItemType::XATTR_ITEM {
        return ensure(location == Key::MIN, || format!("an attribute that points at {location}"));
    }
    check_inode_key(location)
}

pub(super) fn check_log_range(item: &Item<'_>) -> Verdict {
    item.ensure_len(size_of::<DirLogItem>())?;
    ensure(item.key.objectid >= FIRST_FREE, || "the log of no directory".into())
}
