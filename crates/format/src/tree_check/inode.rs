//! Inodes, their names, and verity items.

use super::{Item, Verdict, ensure};
use crate::Key;
use crate::item::{
    FileType, InodeExtrefs, InodeFlags, InodeItem, InodeRefs, NAME_MAX, VerityDescriptorItem,
};
use crate::objectid::{FIRST_FREE, FREE_INO, LAST_FREE, ROOT_TREE_DIR};

/// The kernel refuses inodes with other flags than these in the lower half. The upper half, which
/// is compatible with reading, may be anything.
const POSSIBLE_FLAGS: u64 = (!0 << 32) | 0xfff | InodeFlags::ROOT_ITEM_INIT.bits();

/// Checks the key of an inode item: the item's own, or the target of a directory entry.
pub(super) fn check_inode_key(key: Key) -> Verdict {
    let number = key.objectid;
    let possible =
        (FIRST_FREE..=LAST_FREE).contains(&number) || [ROOT_TREE_DIR, FREE_INO].contains(&number);
    ensure(possible, || format!("{number} is no inode number"))?;
    ensure(key.offset == 0, || format!("an inode's key {key} has an offset"))
}

pub(super) fn check_inode_item(item: &Item<'_>) -> Verdict {
    check_inode_key(item.key)?;
    item.ensure_len(size_of::<InodeItem>())?;
    let inode = crate::read_exact_item::<InodeItem>(item.data).map_err(|e| e.to_string())?;
    let mode = inode.mode.get();
    let file_type = FileType::from_mode(mode).filter(|_| mode <= 0o177_777);
    ensure(file_type.is_some(), || format!("mode {mode:o} is of no kind of file"))?;
    let nlink = inode.nlink.get();
    ensure(file_type != Some(FileType::Directory) || nlink <= 1, || {
        format!("a directory with {nlink} links")
    })?;
    let flags = inode.flags.get();
    ensure(flags & !POSSIBLE_FLAGS == 0, || format!("unknown flags in {flags:#x}"))
}

pub(super) fn check_inode_ref(item: &Item<'_>) -> Verdict {
    item.ensure_follows_its_inode()?;
    ensure(!item.data.is_empty(), || "names nothing".into())?;
    for name in InodeRefs::new(item.data) {
        check_name(name.map_err(|e| e.to_string())?.name)?;
    }
    Ok(())
}

/// The kernel does not check the lengths of these names.
pub(super) fn check_inode_extref(item: &Item<'_>) -> Verdict {
    item.ensure_follows_its_inode()?;
    for name in InodeExtrefs::new(item.data) {
        name.map_err(|e| e.to_string())?;
    }
    Ok(())
}

pub(super) fn check_name(name: &[u8]) -> Verdict {
    ensure((1..=NAME_MAX).contains(&name.len()), || format!("a name of {} bytes", name.len()))
}

/// The item at offset 0 has the length of the descriptor; its pieces follow at the offsets after.
pub(super) fn check_verity_descriptor(item: &Item<'_>) -> Verdict {
    if item.key.offset == 0 { item.ensure_len(size_of::<VerityDescriptorItem>()) } else { Ok(()) }
}
