//! Roots of trees, names of subvolumes, and subvolumes by uuid.

use super::inode::check_name;
use super::{Context, Item, Verdict, ensure, is_plain_subvolume};
use crate::Key;
use crate::item::{
    ROOT_ITEM_V0_SIZE, ROOT_SUBVOL_DEAD, ROOT_SUBVOL_RDONLY, RootItem, RootRef, uuid_items,
};
use crate::node::MAX_LEVELS;
use crate::objectid::TREE_RELOC;

/// Checks the key of a root item: the item's own (`is_item`), or the target of a directory entry.
pub(super) fn check_root_key(key: Key, is_item: bool) -> Verdict {
    ensure(key.objectid != 0, || "tree 0".into())?;
    ensure(is_item || is_plain_subvolume(key.objectid), || {
        format!("points at tree {}, which is not a subvolume", key.objectid)
    })?;
    ensure(key.objectid != TREE_RELOC || key.offset != 0, || "relocates tree 0".into())
}

pub(super) fn check_root_item(item: &Item<'_>, context: &Context) -> Verdict {
    check_root_key(item.key, true)?;
    let len = item.data.len();
    ensure([size_of::<RootItem>(), ROOT_ITEM_V0_SIZE].contains(&len), || format!("{len} bytes"))?;
    let root = RootItem::parse(item.data).map_err(|e| e.to_string())?;
    ensure(context.is_aligned(root.bytenr.get()), || {
        format!("root address {} is not a multiple of {}", root.bytenr, context.sectorsize)
    })?;
    for (name, level) in [("level", root.level), ("drop_level", root.drop_level)] {
        ensure(usize::from(level) < MAX_LEVELS, || format!("{name} {level} is over 7"))?;
    }
    let flags = root.flags.get();
    ensure(flags & !(ROOT_SUBVOL_RDONLY | ROOT_SUBVOL_DEAD) == 0, || {
        format!("unknown flags in {flags:#x}")
    })
}

pub(super) fn check_root_ref(item: &Item<'_>) -> Verdict {
    check_name(RootRef::parse(item.data).map_err(|e| e.to_string())?.name)
}

pub(super) fn check_uuid(item: &Item<'_>) -> Verdict {
    uuid_items(item.data).map(drop).map_err(|e| e.to_string())
}
