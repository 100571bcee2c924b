//! Compares chunks, device extents, block groups and extents.

use std::collections::{BTreeSet, HashMap};

use larder_format::{BlockGroupFlags, objectid};

use super::{BlockGroups, ChunkTree, DeviceExtent};
use crate::context::Context;
use crate::evidence::{ExtentEvidence, SpaceEvidence};
use crate::extents::{ExtentRecord, ExtentTable};
use crate::report::Location;

/// Compares the stripes of chunks with device extents, and these with the devices.
pub(crate) fn check_device_extents(
    context: &Context<'_>,
    tree: &ChunkTree,
    extents: &[DeviceExtent],
) {
    let mut stripes = BTreeSet::new();
    for (start, chunk) in &tree.chunks {
        stripes.extend(chunk.stripes().iter().map(|stripe| DeviceExtent {
            devid: stripe.devid,
            physical: stripe.physical.0,
            len_bytes: chunk.bytes_per_stripe(),
            chunk: *start,
        }));
    }
    let known: BTreeSet<DeviceExtent> = extents.iter().copied().collect();
    for stripe in stripes.difference(&known) {
        let DeviceExtent { chunk, len_bytes, .. } = *stripe;
        context.find(stripe.location(), SpaceEvidence::NoDeviceExtent { chunk, len_bytes });
    }
    for extent in known.difference(&stripes) {
        let DeviceExtent { chunk, len_bytes, .. } = *extent;
        let evidence = SpaceEvidence::NoChunkOfDeviceExtent { chunk, len_bytes };
        context.find(extent.location(), evidence);
    }
    check_device_ranges(context, tree, extents);
    check_devices(context, tree, extents);
}

fn check_device_ranges(context: &Context<'_>, tree: &ChunkTree, extents: &[DeviceExtent]) {
    for pair in extents.windows(2) {
        if pair[0].devid == pair[1].devid && pair[0].end() > pair[1].physical {
            let previous_end = pair[0].end();
            let evidence = SpaceEvidence::DeviceExtentOverlaps { previous_end };
            context.find(pair[1].location(), evidence);
        }
    }
    for extent in extents {
        let len_bytes = tree.devices.get(&extent.devid).map(|device| device.total_bytes.get());
        let is_inside = extent.physical.checked_add(extent.len_bytes).is_some()
            && len_bytes.is_some_and(|len_bytes| extent.end() <= len_bytes);
        // Old mkfs.btrfs used the first MiB, too. The superblock in it is avoided like others.
        if !is_inside {
            let len_bytes = extent.len_bytes;
            context.find(extent.location(), SpaceEvidence::OutsideOfDevice { len_bytes });
        }
    }
}

fn check_devices(context: &Context<'_>, tree: &ChunkTree, extents: &[DeviceExtent]) {
    let mut used_bytes: HashMap<u64, u64> = HashMap::new();
    for extent in extents {
        let used = used_bytes.entry(extent.devid).or_default();
        *used = used.saturating_add(extent.len_bytes);
    }
    for (devid, device) in &tree.devices {
        let used = used_bytes.get(devid).copied().unwrap_or(0);
        if device.bytes_used.get() != used {
            let (found, expected) = (device.bytes_used.get(), used);
            let evidence = SpaceEvidence::DeviceBytesUsed { found, expected };
            context.find(Location::device(*devid), evidence);
        }
        let real = context.volume.device(*devid).and_then(|device| device.device().cloned());
        if let Some(len_bytes) = real.map(|device| device.len_bytes())
            && len_bytes < device.total_bytes.get()
        {
            let expected_bytes = device.total_bytes.get();
            let evidence = SpaceEvidence::DeviceLen { found_bytes: len_bytes, expected_bytes };
            context.find(Location::device(*devid), evidence);
        }
    }
}

/// Compares chunks with block groups, in both directions.
pub(crate) fn check_block_groups(context: &Context<'_>, tree: &ChunkTree, groups: &BlockGroups) {
    for (start, chunk) in &tree.chunks {
        let location = Location::tree(objectid::CHUNK_TREE).at(*start);
        match groups.get(*start) {
            Some(group) if group.len_bytes == chunk.len_bytes() => {
                if group.flags != chunk.flags() {
                    let (found, expected) = (group.flags.bits(), chunk.flags().bits());
                    context.find(location, SpaceEvidence::BlockGroupFlags { found, expected });
                }
            }
            _ => {
                let len_bytes = chunk.len_bytes();
                context.find(location, SpaceEvidence::NoBlockGroup { len_bytes });
            }
        }
    }
    for group in &groups.groups {
        let chunk = tree.chunks.get(&group.start);
        if chunk.is_none_or(|chunk| chunk.len_bytes() != group.len_bytes) {
            let location = Location::tree(group.tree).at(group.start);
            context.find(location, SpaceEvidence::NoChunk { len_bytes: group.len_bytes });
        }
    }
}

/// Checks that extents lie in chunks of their kind. (Another check compares chunks with block
/// groups.)
pub(crate) fn check_extents(context: &Context<'_>, tree: &ChunkTree, extents: &ExtentTable) {
    for extent in &extents.records {
        let chunk = tree.chunks.range(..=extent.start).next_back().map(|(_, chunk)| chunk);
        let Some(chunk) = chunk.filter(|chunk| extent.end() <= chunk.end().0) else {
            let len_bytes = extent.len_bytes;
            context.find(location(extent), ExtentEvidence::OutsideOfChunks { len_bytes });
            continue;
        };
        let wanted = if extent.is_data() {
            BlockGroupFlags::DATA
        } else {
            BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM
        };
        if !chunk.flags().intersects(wanted) {
            let found = chunk.flags().type_name();
            context.find(location(extent), ExtentEvidence::InGroupOf { found });
        }
    }
}

/// Checks that extents add up to the used bytes of block groups.
pub(crate) fn check_used(context: &Context<'_>, groups: &BlockGroups, extents: &ExtentTable) {
    if !extents.is_whole {
        return;
    }
    for group in &groups.groups {
        let used: u64 = extents
            .within(group.start, group.end())
            .iter()
            .fold(0, |sum, extent| sum.saturating_add(extent.len_bytes));
        if used != group.used_bytes {
            let location = Location::tree(group.tree).at(group.start);
            let (found, expected) = (group.used_bytes, used);
            context.find(location, SpaceEvidence::Used { found, expected });
        }
    }
}

fn location(extent: &ExtentRecord) -> Location {
    Location::tree(objectid::EXTENT_TREE).at(extent.start)
}

/// Checks that no extent lies where a superblock copy belongs.
pub(crate) fn check_superblock_ranges(
    context: &Context<'_>,
    tree: &ChunkTree,
    extents: &ExtentTable,
) {
    for chunk in tree.chunks.values() {
        for (start, len_bytes) in chunk.superblock_ranges() {
            for extent in extents.within(start.0, start.0.saturating_add(len_bytes)) {
                let start = start.0;
                context.find(location(extent), ExtentEvidence::OnSuperblock { start, len_bytes });
            }
        }
    }
}
