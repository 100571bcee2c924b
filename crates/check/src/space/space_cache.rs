//! The v1 space cache against the extent tree.
//!
//! A block group's cache is a file of 4 KiB pages in the root tree. The first page starts with a
//! CRC-32C for each page and a generation; entries follow, and after them a page for each bitmap.
//! The kernel ignores a cache whose generation differs from that in its header item.

use larder_format::item::{
    FREE_SPACE_V1_BITMAP, FREE_SPACE_V1_EXTENT, FreeSpaceEntry, FreeSpaceHeader,
};
use larder_format::{ChecksumType, objectid, read_prefix};
use zerocopy::little_endian::U64;

use super::free_ranges::{self, Range};
use super::{BlockGroup, Space};
use crate::blocks::reader::read_mirror;
use crate::context::Context;
use crate::evidence::SpaceEvidence;
use crate::report::Location;
use crate::roots::{CacheInode, RootTree};

/// Page size of the kernels whose caches are checked.
const PAGE_BYTES: usize = 4096;
/// Largest cache to read: the kernel's are far smaller.
const MOST_BYTES: u64 = 64 << 20;

/// Reports where the space cache is not the complement of the extent tree.
pub(crate) fn check(context: &Context<'_>, roots: &RootTree, space: Space<'_>) {
    let is_used = context.superblock.cache_generation.get() == context.generation();
    if !is_used || context.sectorsize != PAGE_BYTES as u64 || !space.extents.is_whole {
        return;
    }
    for (start, header) in &roots.caches {
        let location = Location::tree(objectid::ROOT_TREE).at(*start);
        let Some(group) = space.groups.get(*start) else {
            context.find(location, SpaceEvidence::CacheOfNothing);
            continue;
        };
        let ino = header.location.get().objectid;
        let Some(inode) = roots.cache_inodes.get(&ino) else {
            context.find(location, SpaceEvidence::CacheWithoutInode { inode: ino });
            continue;
        };
        if inode.generation != header.generation.get() || header.num_entries.get() == 0 {
            continue;
        }
        match read_cache(context, header, inode, group) {
            Ok(free) => compare(context, space, group, &free, location),
            Err(problem) => context.find(location, problem),
        }
    }
}

fn compare(
    context: &Context<'_>,
    space: Space<'_>,
    group: &BlockGroup,
    free: &[Range],
    location: Location,
) {
    let real = free_ranges::between_extents(space.extents, group);
    if let Some(at) = free_ranges::first_difference(space.chunks, group, free, &real) {
        context.find(location, SpaceEvidence::CacheDiffers { at });
    }
}

/// The free ranges in a cache, in order.
fn read_cache(
    context: &Context<'_>,
    header: &FreeSpaceHeader,
    inode: &CacheInode,
    group: &BlockGroup,
) -> Result<Vec<Range>, SpaceEvidence> {
    let content = read_file(context, inode)?;
    let pages: Vec<&[u8]> = content.chunks_exact(PAGE_BYTES).collect();
    let after_crcs = pages.len() * size_of::<u32>();
    check_pages(&pages, after_crcs)?;
    let first = pages[0];
    let (generation, _) = read_prefix::<U64>(&first[after_crcs..])
        .map_err(|problem| SpaceEvidence::CacheFormat { problem })?;
    if *generation != header.generation {
        let (found, expected) = (generation.get(), header.generation.get());
        return Err(SpaceEvidence::CacheGeneration { found, expected });
    }
    let mut bodies = pages.iter().enumerate().map(|(number, page)| {
        if number == 0 { &page[after_crcs + size_of::<u64>()..] } else { *page }
    });
    let entries = read_entries(&mut bodies, header.num_entries.get())?;
    let mut free = Vec::new();
    for entry in entries {
        let (start, len_bytes) = (entry.offset.get(), entry.bytes.get());
        match entry.kind {
            FREE_SPACE_V1_EXTENT => {
                let end = start.checked_add(len_bytes).ok_or(SpaceEvidence::CacheEntryRange)?;
                free.push((start, end));
            }
            FREE_SPACE_V1_BITMAP => {
                let page = bodies.next().ok_or(SpaceEvidence::CacheLacksBitmaps)?;
                free.extend(free_ranges::of_bitmap(start, page, context.sectorsize));
            }
            found => return Err(SpaceEvidence::CacheEntryType { found }),
        }
    }
    if free.iter().any(|range| range.0 < group.start || range.1 > group.end()) {
        return Err(SpaceEvidence::CacheEntryOutside);
    }
    free.sort_unstable();
    Ok(free_ranges::join(free.into_iter()))
}

fn check_pages(pages: &[&[u8]], after_crcs: usize) -> Result<(), SpaceEvidence> {
    let first = pages.first().ok_or(SpaceEvidence::CacheEmpty)?;
    let crcs = first.get(..after_crcs).ok_or(SpaceEvidence::CacheTooManyPages)?;
    for (number, (page, stored)) in pages.iter().zip(crcs.chunks_exact(4)).enumerate() {
        let body = if number == 0 { &page[after_crcs..] } else { page };
        if ChecksumType::Crc32c.compute(body).as_bytes() != stored {
            return Err(SpaceEvidence::CachePage { number });
        }
    }
    Ok(())
}

/// The entries, as many on each page as fit; leaves the pages of bitmaps.
fn read_entries<'a>(
    bodies: &mut impl Iterator<Item = &'a [u8]>,
    count: u64,
) -> Result<Vec<FreeSpaceEntry>, SpaceEvidence> {
    let mut entries = Vec::new();
    while (entries.len() as u64) < count {
        let mut body = bodies.next().ok_or(SpaceEvidence::CacheLacksEntries)?;
        while (entries.len() as u64) < count {
            let Ok((entry, rest)) = read_prefix::<FreeSpaceEntry>(body) else { break };
            entries.push(*entry);
            body = rest;
        }
    }
    Ok(entries)
}

fn read_file(context: &Context<'_>, inode: &CacheInode) -> Result<Vec<u8>, SpaceEvidence> {
    if inode.size > MOST_BYTES {
        return Err(SpaceEvidence::CacheLen { found_bytes: inode.size });
    }
    let mut content = vec![0; (inode.size as usize).next_multiple_of(PAGE_BYTES)];
    for (offset, extent) in &inode.extents {
        let Some(rest) = usize::try_from(*offset).ok().and_then(|at| content.get_mut(at..)) else {
            continue;
        };
        let len = rest.len().min(usize::try_from(extent.num_bytes.get()).unwrap_or(usize::MAX));
        let logical = extent.disk_bytenr.get().saturating_add(extent.offset.get());
        let copies = context.volume.copies(larder_format::Logical(logical)).max(1);
        (0..copies)
            .map(|copy| read_mirror(context, logical, copy, &mut rest[..len]))
            .find(Result::is_ok)
            .and_then(Result::ok)
            .ok_or(SpaceEvidence::CacheUnreadable)?;
    }
    Ok(content)
}
