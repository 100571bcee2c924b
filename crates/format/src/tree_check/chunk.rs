//! Chunks, devices and the extents of devices.

use super::{Context, Item, Verdict, ensure};
use crate::block_group::STRIPE_LEN_BYTES;
use crate::feature::IncompatFlags;
use crate::item::{Chunk, DevExtent, DevItem, RaidStride};
use crate::objectid::{CHUNK_TREE, DEV_ITEMS, FIRST_CHUNK_TREE};
use crate::{BlockGroupFlags, Profile};

/// Stripes of a chunk are counted in 32 bits.
const CHUNK_LEN_LIMIT_BYTES: u64 = STRIPE_LEN_BYTES * u32::MAX as u64;

pub(super) fn check_chunk_item(item: &Item<'_>, context: &Context) -> Verdict {
    let chunk = Chunk::parse(item.data).map_err(|e| e.to_string())?;
    check_chunk(item.key.offset, &chunk, context)
}

/// Checks a chunk that starts at the logical address `start`.
pub(super) fn check_chunk(start: u64, chunk: &Chunk<'_>, context: &Context) -> Verdict {
    let header = chunk.header;
    let len_bytes = header.length.get();
    ensure(context.is_aligned(start) && context.is_aligned(len_bytes) && len_bytes != 0, || {
        format!("{len_bytes} bytes from {start} are no range of sectors")
    })?;
    ensure(start.checked_add(len_bytes).is_some(), || "ends past 2^64".into())?;
    ensure(len_bytes < CHUNK_LEN_LIMIT_BYTES, || format!("{len_bytes} bytes are too many"))?;
    ensure(header.sector_size.get() == context.sectorsize, || {
        format!("sector_size {} where {} is used", header.sector_size, context.sectorsize)
    })?;
    ensure(header.stripe_len.get() == STRIPE_LEN_BYTES, || {
        format!("stripe_len {} where 65536 is used", header.stripe_len)
    })?;
    let profile = check_type(chunk.flags(), context)?;
    check_stripes(profile, header.num_stripes.get(), header.sub_stripes.get())
}

fn check_type(flags: BlockGroupFlags, context: &Context) -> Result<Profile, String> {
    let known = BlockGroupFlags::TYPES | BlockGroupFlags::PROFILES;
    let described = || format!("{:#x}", flags.bits());
    ensure(known.contains(flags), || format!("unknown bits in type {}", described()))?;
    let data_or_metadata = flags & (BlockGroupFlags::DATA | BlockGroupFlags::METADATA);
    let is_system = flags.contains(BlockGroupFlags::SYSTEM);
    ensure(is_system == data_or_metadata.is_empty(), || {
        format!("no or contradictory types in {}", described())
    })?;
    let is_mixed = data_or_metadata.bits().count_ones() == 2;
    ensure(!is_mixed || context.has(IncompatFlags::MIXED_GROUPS), || {
        "data and metadata together without the feature MIXED_GROUPS".into()
    })?;
    flags.profile().ok_or_else(|| format!("several profiles in {}", described()))
}

fn check_stripes(profile: Profile, num_stripes: u16, sub_stripes: u16) -> Verdict {
    let shape = profile.shape();
    let (stripes, least) = (usize::from(num_stripes), shape.min_stripes());
    ensure(stripes == least || (stripes > least && shape.is_striped), || {
        format!("{num_stripes} stripes do not make {profile}")
    })?;
    let has_pairs = shape.device_step > 1;
    ensure(!has_pairs || usize::from(sub_stripes) == shape.device_step, || {
        format!("sub_stripes {sub_stripes} do not make {profile}")
    })
}

pub(super) fn check_dev_item(item: &Item<'_>) -> Verdict {
    ensure(item.key.objectid == DEV_ITEMS, || "a device under another objectid".into())?;
    let device = crate::read_exact_item::<DevItem>(item.data).map_err(|e| e.to_string())?;
    ensure(device.devid.get() == item.key.offset, || format!("says that it is {}", device.devid))?;
    let (used, total) = (device.bytes_used.get(), device.total_bytes.get());
    ensure(used <= total, || format!("{used} bytes used of {total}"))
}

pub(super) fn check_dev_extent(item: &Item<'_>, context: &Context) -> Verdict {
    let extent = crate::read_exact_item::<DevExtent>(item.data).map_err(|e| e.to_string())?;
    let owner = (extent.chunk_tree.get(), extent.chunk_objectid.get());
    ensure(owner == (CHUNK_TREE, FIRST_CHUNK_TREE), || format!("of the chunk tree {owner:?}"))?;
    let (start, len_bytes) = (item.key.offset, extent.length.get());
    let numbers = [start, len_bytes, extent.chunk_offset.get()];
    ensure(numbers.into_iter().all(|bytes| context.is_aligned(bytes)), || {
        format!("{len_bytes} bytes from {start} for chunk {}", extent.chunk_offset)
    })?;
    let Some(previous) = item.previous_of_same_object() else { return Ok(()) };
    let before = crate::read_exact_item::<DevExtent>(previous.data).map_err(|e| e.to_string())?;
    let end = previous.key.offset.saturating_add(before.length.get());
    ensure(end <= start, || format!("starts before the one before it ends at {end}"))
}

pub(super) fn check_raid_stripe(item: &Item<'_>, context: &Context) -> Verdict {
    ensure(context.is_aligned(item.key.objectid), || {
        format!("address {} is not a multiple of {}", item.key.objectid, context.sectorsize)
    })?;
    ensure(context.has(IncompatFlags::RAID_STRIPE_TREE), || {
        "a RAID_STRIPE without the feature RAID_STRIPE_TREE".into()
    })?;
    let len = item.data.len();
    ensure(len.is_multiple_of(size_of::<RaidStride>()), || {
        format!("{len} bytes are no whole number of strides")
    })
}
