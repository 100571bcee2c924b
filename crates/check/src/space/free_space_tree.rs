//! The free space tree against the extent tree.

use std::collections::BTreeSet;

use larder_format::item::{FreeSpaceInfo, USING_BITMAPS};
use larder_format::{ItemType, read_exact_item};

use super::free_ranges::{self, Range};
use super::{BlockGroup, BlockGroups, ChunkTree};
use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ItemEvidence, SpaceEvidence};
use crate::extents::ExtentTable;
use crate::report::Location;

const MIB: u64 = 1 << 20;
/// The block groups that mkfs.btrfs begins with, for which it leaves entries: where they start, and
/// their lengths.
const INITIAL_GROUPS: [(u64, u64); 3] = [(MIB, 4 * MIB), (5 * MIB, 8 * MIB), (13 * MIB, 8 * MIB)];

/// The parts that the free space tree is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Space<'a> {
    pub(crate) chunks: &'a ChunkTree,
    pub(crate) groups: &'a BlockGroups,
    pub(crate) extents: &'a ExtentTable,
}

/// Reads the free space tree and reports where it is not the complement of the extent tree.
///
/// mkfs.btrfs leaves the entries of its initial block groups, which no longer exist: they lie
/// before every chunk, and say that all of the group is free. The kernel ignores them.
pub(crate) fn check(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot, space: Space<'_>) {
    let mut reader =
        Reader { context, space, current: None, leftover: None, seen: BTreeSet::new() };
    let is_whole = for_each_item(context, forest, root, |item| match item.key.item_type {
        ItemType::FREE_SPACE_INFO => reader.info(&item),
        ItemType::FREE_SPACE_EXTENT => reader.extent(&item),
        ItemType::FREE_SPACE_BITMAP => reader.bitmap(&item),
        other => {
            let unexpected = ItemEvidence::Unexpected { found: other, tree: "free space tree" };
            item.find(context, unexpected);
        }
    });
    if !is_whole {
        return;
    }
    reader.finish();
    for group in &space.groups.groups {
        if !reader.seen.contains(&group.start) {
            let location = Location::tree(root.tree).at(group.start);
            context.find(location, SpaceEvidence::NoFreeSpaceInfo);
        }
    }
}

/// The block group whose free space is being read.
struct Current {
    group: BlockGroup,
    extent_count: u32,
    uses_bitmaps: bool,
    free: Vec<Range>,
}

struct Reader<'c, 'v> {
    context: &'c Context<'v>,
    space: Space<'c>,
    current: Option<Current>,
    /// An initial block group of mkfs.btrfs whose entry for its free range was not read yet.
    leftover: Option<Range>,
    seen: BTreeSet<u64>,
}

impl Reader<'_, '_> {
    fn info(&mut self, item: &Item<'_>) {
        self.finish();
        let info = match read_exact_item::<FreeSpaceInfo>(item.data) {
            Ok(info) => info,
            Err(error) => {
                return item.find(self.context, ItemEvidence::Format { problem: error });
            }
        };
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        let group = self.space.groups.get(start).filter(|group| group.len_bytes == len_bytes);
        let Some(group) = group else {
            let range = (start, start.saturating_add(len_bytes));
            let is_initial = INITIAL_GROUPS.contains(&(start, len_bytes));
            if is_initial && self.is_in_front_of_chunks(range) && info.extent_count.get() == 1 {
                self.leftover = Some(range);
            } else {
                item.find(self.context, SpaceEvidence::FreeSpaceOfNothing);
            }
            return;
        };
        self.seen.insert(start);
        let flags = info.flags.get();
        if flags & !USING_BITMAPS != 0 {
            item.find(self.context, SpaceEvidence::FreeSpaceFlags { found: flags });
        }
        self.current = Some(Current {
            group: *group,
            extent_count: info.extent_count.get(),
            uses_bitmaps: flags & USING_BITMAPS != 0,
            free: Vec::new(),
        });
    }

    fn is_in_front_of_chunks(&self, range: Range) -> bool {
        self.space.chunks.chunks.keys().next().is_some_and(|first| range.1 <= *first)
    }

    /// The current group, if the item belongs to it and has the format that its group uses.
    fn current_for(&mut self, item: &Item<'_>, is_bitmap: bool) -> Option<&mut Current> {
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        let end = start.checked_add(len_bytes);
        let is_aligned = self.context.is_aligned(start) && self.context.is_aligned(len_bytes);
        let current = self.current.as_mut().filter(|current| {
            let group = &current.group;
            is_aligned
                && len_bytes > 0
                && group.start <= start
                && end.is_some_and(|end| end <= group.end())
                && current.uses_bitmaps == is_bitmap
        });
        if current.is_none() {
            item.find(self.context, SpaceEvidence::FreeSpaceMisfit);
        }
        current
    }

    fn extent(&mut self, item: &Item<'_>) {
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        let found = item.data.len();
        if found > 0 {
            item.find(self.context, ItemEvidence::Len { found, expected: 0 });
        }
        if self.leftover.take_if(|left| *left == (start, start.saturating_add(len_bytes))).is_some()
        {
            return;
        }
        if let Some(current) = self.current_for(item, false) {
            current.free.push((start, start + len_bytes));
        }
    }

    fn bitmap(&mut self, item: &Item<'_>) {
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        let sectorsize = self.context.sectorsize;
        if item.data.len() as u64 != (len_bytes / sectorsize).div_ceil(8) {
            let found = item.data.len();
            return item.find(self.context, ItemEvidence::BitmapLen { found });
        }
        let Some(current) = self.current_for(item, true) else { return };
        let end = start + len_bytes;
        let ranges = free_ranges::of_bitmap(start, item.data, sectorsize);
        // Bits beyond the bitmap's range mean nothing.
        let inside = ranges.into_iter().filter(|range| range.0 < end);
        current.free.extend(inside.map(|range| (range.0, range.1.min(end))));
    }

    fn finish(&mut self) {
        if let Some((start, _)) = self.leftover.take() {
            let location = Location::tree(larder_format::objectid::FREE_SPACE_TREE).at(start);
            self.context.find(location, SpaceEvidence::FreeSpaceOfNothing);
        }
        let Some(current) = self.current.take() else { return };
        let Current { group, extent_count, free, uses_bitmaps } = current;
        let free = if uses_bitmaps { free_ranges::join(free.into_iter()) } else { free };
        let location = Location::tree(larder_format::objectid::FREE_SPACE_TREE).at(group.start);
        if free.len() != extent_count as usize {
            let (found, expected) = (extent_count, free.len());
            self.context.find(location, SpaceEvidence::FreeSpaceCount { found, expected });
        }
        let Space { chunks, extents, .. } = self.space;
        if !extents.is_whole {
            return;
        }
        let real = free_ranges::between_extents(extents, &group);
        if let Some(at) = free_ranges::first_difference(chunks, &group, &free, &real) {
            self.context.find(location, SpaceEvidence::FreeSpaceDiffers { at });
        }
    }
}
