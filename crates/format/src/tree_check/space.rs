//! Block groups and the free space in them.

use super::{Context, Item, Verdict, ensure};
use crate::BlockGroupFlags;
use crate::item::{BlockGroupItem, FREE_SPACE_BITMAP_BITS, FreeSpaceInfo};
use crate::objectid::FIRST_CHUNK_TREE;

pub(super) fn check_block_group(item: &Item<'_>) -> Verdict {
    let len_bytes = item.key.offset;
    ensure(len_bytes != 0, || "a block group of 0 bytes".into())?;
    let group = crate::read_exact_item::<BlockGroupItem>(item.data).map_err(|e| e.to_string())?;
    ensure(group.chunk_objectid.get() == FIRST_CHUNK_TREE, || {
        format!("chunk_objectid {}", group.chunk_objectid)
    })?;
    let used = group.used.get();
    ensure(used <= len_bytes, || format!("{used} bytes used of {len_bytes}"))?;
    let flags = group.flags();
    ensure(flags.profile().is_some(), || format!("several profiles in {:#x}", group.flags))?;
    let types = flags & BlockGroupFlags::TYPES;
    let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
    ensure(types.bits().is_power_of_two() || types == mixed, || {
        format!("no or contradictory types in {:#x}", group.flags)
    })
}

pub(super) fn check_free_space_info(item: &Item<'_>, context: &Context) -> Verdict {
    check_range(item, context)?;
    item.ensure_len(size_of::<FreeSpaceInfo>())
}

pub(super) fn check_free_space_extent(item: &Item<'_>, context: &Context) -> Verdict {
    check_range(item, context)?;
    item.ensure_len(0)
}

pub(super) fn check_free_space_bitmap(item: &Item<'_>, context: &Context) -> Verdict {
    check_range(item, context)?;
    let sectors = item.key.offset / u64::from(context.sectorsize);
    ensure(sectors <= FREE_SPACE_BITMAP_BITS, || format!("a bitmap of {sectors} sectors"))?;
    item.ensure_len(sectors.div_ceil(8) as usize)
}

/// Keys of the free space tree are ranges.
fn check_range(item: &Item<'_>, context: &Context) -> Verdict {
    let (start, len_bytes) = (item.key.objectid, item.key.offset);
    let sound = context.is_aligned(start)
        && context.is_aligned(len_bytes)
        && len_bytes != 0
        && start.checked_add(len_bytes).is_some();
    ensure(sound, || format!("{len_bytes} bytes from {start} are no range of sectors"))
}
