//! Block groups and their free space.

use larder_format::item::{BlockGroupItem, FreeSpaceInfo};
use larder_format::{ItemType, Key, objectid};
use zerocopy::IntoBytes;

use super::{Layout, Plan};
use crate::MkfsError;
use crate::space::BlockGroup;
use crate::tree::Emit;

fn key_of_type(group: &BlockGroup, item_type: ItemType) -> Key {
    Key::new(group.chunk.logical().0, item_type, group.chunk.len_bytes())
}

pub(super) fn key(group: &BlockGroup) -> Key {
    key_of_type(group, ItemType::BLOCK_GROUP_ITEM)
}

pub(super) fn item(group: &BlockGroup) -> BlockGroupItem {
    BlockGroupItem {
        used: group.used_bytes().into(),
        chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
        flags: group.flags().bits().into(),
    }
}

/// The block group tree.
pub(super) fn block_group_items(
    _: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    plan.space.groups().iter().try_for_each(|group| emit(key(group), item(group).as_bytes()))
}

/// The free space tree. Groups fill from start to end, which leaves so few free ranges that none
/// needs bitmaps.
pub(super) fn free_space_items(
    _: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    for group in plan.space.groups() {
        let extent_count = group.free_ranges().count() as u32;
        let info = FreeSpaceInfo { extent_count: extent_count.into(), flags: 0.into() };
        emit(key_of_type(group, ItemType::FREE_SPACE_INFO), info.as_bytes())?;
        for free in group.free_ranges() {
            let len_bytes = free.end - free.start;
            emit(Key::new(free.start, ItemType::FREE_SPACE_EXTENT, len_bytes), &[])?;
        }
    }
    Ok(())
}
