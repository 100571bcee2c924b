//! Allocating logical addresses: block groups that fill from start to end.
//!
//! Invariants:
//! * nothing is allocated twice, nor where a superblock or its copies are on any device;
//! * for each use, addresses only ascend, and so do those of its block groups: a record in order of
//!   allocation is sorted;
//! * there is a gap between block groups, so that no extent, checksum item or merged write is in
//!   two of them;
//! * a block group with tree blocks keeps its last tree block free. So it always ends in free
//!   space, and the number of items that describe it never falls as more is allocated: the fixed
//!   point in [`crate::finish`] depends on it.

mod chunks;

use std::ops::Range;
use std::sync::Arc;

use larder_format::{BlockGroupFlags, Logical, SpaceKind};
use larder_volume::Chunk;
use larder_volume::layout::Devices;

use crate::MkfsError;
use crate::settings::Settings;

pub(crate) use chunks::{Appetite, ChunkAllocator, Sizes, min_device_bytes, needed_device_bytes};

/// A chunk and its allocated ranges.
#[derive(Clone, Debug)]
pub(crate) struct BlockGroup {
    pub(crate) chunk: Arc<Chunk>,
    usage: SpaceKind,
    /// Ranges that may not be allocated, ascending.
    reserved: Vec<Range<u64>>,
    /// Allocated ranges, ascending and not touching each other.
    allocated: Vec<Range<u64>>,
    /// Nothing is allocated from here on.
    cursor: u64,
    /// Nothing is allocated past this.
    limit: u64,
}

impl BlockGroup {
    fn new(chunk: Chunk, usage: SpaceKind, settings: &Settings) -> Self {
        let reserved = chunk
            .superblock_ranges()
            .into_iter()
            .map(|(start, len_bytes)| start.0..start.0 + len_bytes)
            .collect();
        let kept_free = if usage == SpaceKind::Data { 0 } else { settings.node_size as u64 };
        let (cursor, limit) = (chunk.logical().0, chunk.end().0 - kept_free);
        Self { chunk: Arc::new(chunk), usage, reserved, allocated: Vec::new(), cursor, limit }
    }

    /// Gives it another layout, with the same ranges allocated.
    fn set_chunk(&mut self, chunk: Chunk, settings: &Settings) {
        let (allocated, cursor) = (std::mem::take(&mut self.allocated), self.cursor);
        *self = Self { allocated, cursor, ..Self::new(chunk, self.usage, settings) };
    }

    /// Allocates at least `least` and at most `wanted` bytes in one piece, or nothing.
    fn allocate(&mut self, wanted: u64, least: u64) -> Option<Range<u64>> {
        loop {
            let barrier = self.reserved.iter().find(|range| range.end > self.cursor).cloned();
            let end = barrier.as_ref().map_or(self.limit, |range| range.start.min(self.limit));
            let room = end.saturating_sub(self.cursor);
            if room >= least {
                let range = self.cursor..self.cursor + wanted.min(room);
                self.cursor = range.end;
                self.record(range.clone());
                return Some(range);
            }
            self.cursor = barrier?.end;
        }
    }

    fn record(&mut self, range: Range<u64>) {
        match self.allocated.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.allocated.push(range),
        }
    }

    /// Type and profile.
    pub(crate) fn flags(&self) -> BlockGroupFlags {
        self.chunk.flags()
    }

    /// Whether it is for tree blocks alone.
    pub(crate) fn holds_trees(&self) -> bool {
        !self.flags().contains(BlockGroupFlags::DATA)
    }

    /// Bytes that are allocated.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.allocated.iter().map(|range| range.end - range.start).sum()
    }

    /// The free ranges, ascending; places of superblocks count as free, as in the kernel.
    pub(crate) fn free_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = std::iter::once(self.chunk.logical().0)
            .chain(self.allocated.iter().map(|range| range.end));
        let ends = self
            .allocated
            .iter()
            .map(|range| range.start)
            .chain(std::iter::once(self.chunk.end().0));
        starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end)
    }
}

/// All block groups, and the devices for new ones.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    chunks: ChunkAllocator,
    /// In the order of their addresses.
    groups: Vec<BlockGroup>,
}

impl Space {
    pub(crate) fn new(chunks: ChunkAllocator) -> Self {
        Self { chunks, groups: Vec::new() }
    }

    pub(crate) fn groups(&self) -> &[BlockGroup] {
        &self.groups
    }

    pub(crate) fn devices(&self) -> &Devices {
        self.chunks.devices()
    }

    /// Bytes that block groups of all uses have allocated.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.groups.iter().map(BlockGroup::used_bytes).sum()
    }

    /// Makes a block group, even if the last one of this use has free space.
    pub(crate) fn add_group(
        &mut self,
        usage: SpaceKind,
        settings: &Settings,
    ) -> Result<(), MkfsError> {
        let chunk = self.chunks.allocate(usage, settings)?;
        self.groups.push(BlockGroup::new(chunk, usage, settings));
        Ok(())
    }

    /// Allocates at least `least` and at most `wanted` bytes in one piece.
    pub(crate) fn allocate(
        &mut self,
        usage: SpaceKind,
        wanted: u64,
        least: u64,
        settings: &Settings,
    ) -> Result<Range<u64>, MkfsError> {
        loop {
            let open = self.groups.iter_mut().rev().find(|group| group.usage == usage);
            if let Some(range) = open.and_then(|group| group.allocate(wanted, least)) {
                return Ok(range);
            }
            self.add_group(usage, settings)?;
        }
    }

    /// Allocates a tree block.
    pub(crate) fn allocate_block(
        &mut self,
        usage: SpaceKind,
        settings: &Settings,
    ) -> Result<Logical, MkfsError> {
        let node_size = settings.node_size as u64;
        Ok(Logical(self.allocate(usage, node_size, node_size, settings)?.start))
    }

    /// Makes a block group for exactly so many tree blocks of a use. More go to another one.
    pub(crate) fn add_group_of(
        &mut self,
        usage: SpaceKind,
        blocks: u64,
        settings: &Settings,
    ) -> Result<(), MkfsError> {
        // One of them stays free.
        let len_bytes = (blocks + 1) * settings.node_size as u64;
        let chunk = self.chunks.allocate_exactly(usage, len_bytes, settings)?;
        self.groups.push(BlockGroup::new(chunk, usage, settings));
        Ok(())
    }

    /// Cuts block groups to what they hold, and moves their stripes down as far as there is room:
    /// what is allocated later goes to new ones. Those for the chunk tree stay as they are. Returns
    /// the layouts that chunks get, each of which moves one stripe at most: what was allocated is
    /// copied before the next one.
    pub(crate) fn settle(&mut self, settings: &Settings) -> Vec<Chunk> {
        let mut layouts = Vec::new();
        for group in &mut self.groups {
            let kept_free = group.chunk.end().0 - group.limit;
            let used = group.allocated.last().map_or(0, |last| last.end - group.chunk.logical().0);
            if group.usage != SpaceKind::System
                && let Some(chunk) = self.chunks.cut(&group.chunk, used + kept_free)
            {
                group.set_chunk(chunk.clone(), settings);
                layouts.push(chunk);
            }
        }
        let stripes = |(index, group): (usize, &BlockGroup)| {
            let chunk = group.chunk.clone();
            (0..chunk.stripes().len()).map(move |at| {
                let stripe = chunk.stripes()[at];
                (stripe.devid, stripe.physical, index)
            })
        };
        let mut places: Vec<_> = self.groups.iter().enumerate().flat_map(stripes).collect();
        places.sort_unstable();
        for (devid, physical, index) in places {
            let group = &mut self.groups[index];
            if let Some(chunk) = self.chunks.move_down(&group.chunk, devid, physical) {
                group.set_chunk(chunk.clone(), settings);
                layouts.push(chunk);
            }
        }
        layouts
    }

    /// Cuts every device after its last chunk.
    pub(crate) fn shrink_devices(&mut self) {
        self.chunks.shrink_devices();
    }
}

#[cfg(test)]
mod tests {
    use larder_format::Uuid;
    use larder_format::superblock::OFFSETS;
    use larder_volume::layout::DeviceSpace;

    use super::*;
    use crate::MkfsOptions;
    use crate::settings::Medium;

    const MIB: u64 = 1 << 20;

    fn settings() -> Settings {
        Settings::resolve(&MkfsOptions::default(), Medium::of(1)).unwrap()
    }

    fn space(len_bytes: u64, appetite: Appetite) -> Space {
        let devices = [DeviceSpace::new(1, Uuid::nil(), len_bytes)].into_iter().collect();
        Space::new(ChunkAllocator::new(devices, appetite))
    }

    /// Allocates all space for data in pieces of at most `wanted` bytes.
    fn allocate_all(space: &mut Space, wanted: u64, least: u64) -> Vec<Range<u64>> {
        let allocate = || space.allocate(SpaceKind::Data, wanted, least, &settings()).ok();
        std::iter::from_fn(allocate).collect()
    }

    #[test]
    fn allocations_ascend_and_leave_out_superblocks() {
        let appetite = Appetite { data_bytes: 200 * MIB, ..Appetite::default() };
        let mut space = space(200 * MIB, appetite);
        let ranges = allocate_all(&mut space, 3 * MIB + 4096, 4096);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        // All but the first megabyte and the cell with the second superblock.
        assert_eq!(bytes, 199 * MIB - 65536);
        assert_eq!(space.used_bytes(), bytes);
        let free: Vec<_> = space.groups().iter().flat_map(BlockGroup::free_ranges).collect();
        assert_eq!(free.len(), 1);
        let group =
            space.groups().iter().find(|group| group.chunk.contains(Logical(free[0].start)));
        let chunk = &group.unwrap().chunk;
        let physical = chunk.stripes()[0].physical.0 + free[0].start - chunk.logical().0;
        assert_eq!(physical, OFFSETS[1].0);
    }

    #[test]
    fn groups_do_not_touch() {
        let mut space = space(200 * MIB, Appetite::default());
        allocate_all(&mut space, MIB, MIB);
        let groups = space.groups();
        assert!(groups.len() > 2);
        let apart = |pair: &[BlockGroup]| pair[0].chunk.end() < pair[1].chunk.logical();
        assert!(groups.windows(2).all(apart));
    }

    #[test]
    fn pieces_that_must_not_be_cut_are_whole() {
        let mut space = space(200 * MIB, Appetite::default());
        let ranges = allocate_all(&mut space, 130_000, 130_000);
        assert!(ranges.iter().all(|range| range.end - range.start == 130_000));
    }

    #[test]
    fn groups_of_tree_blocks_end_in_free_space() {
        let mut space = space(200 * MIB, Appetite::default());
        while space.allocate_block(SpaceKind::Metadata, &settings()).is_ok() {}
        for group in space.groups() {
            let last = group.free_ranges().last().unwrap();
            assert_eq!(last, group.chunk.end().0 - 16384..group.chunk.end().0);
        }
    }

    #[test]
    fn groups_settle_side_by_side() {
        let mut space = space(200 * MIB, Appetite { data_bytes: MIB, ..Appetite::default() });
        space.add_group(SpaceKind::Data, &settings()).unwrap();
        let data = space.allocate(SpaceKind::Data, 100_000, 100_000, &settings()).unwrap();
        // Two copies on one device.
        let block = space.allocate_block(SpaceKind::Metadata, &settings()).unwrap();
        let layouts = space.settle(&settings());
        let [of_data, .., of_blocks] = &layouts[..] else { panic!("{layouts:?}") };
        assert_eq!((of_data.len_bytes(), of_blocks.len_bytes()), (131_072, 65_536));
        let physical = |chunk: &Chunk| -> Vec<u64> {
            chunk.stripes().iter().map(|stripe| stripe.physical.0).collect()
        };
        assert_eq!(physical(of_data), [MIB]);
        assert_eq!(physical(of_blocks), [MIB + 131_072, MIB + 196_608]);
        assert_eq!(space.used_bytes(), data.end - data.start + 16384);
        assert!(space.groups()[1].chunk.contains(block));
        space.add_group_of(SpaceKind::Metadata, 5, &settings()).unwrap();
        for _ in 0..5 {
            space.allocate_block(SpaceKind::Metadata, &settings()).unwrap();
        }
        assert_eq!(space.groups().len(), 3);
        space.shrink_devices();
        assert_eq!(space.devices().get(1).unwrap().total_bytes, MIB + 262_144 + 2 * 131_072);
    }
}
