//! The free space tree: the free ranges of each block group, as items.
//!
//! # Invariants
//! - The items of a group describe exactly what no extent of the extent tree covers in it.
//!   Superblock copies are no extents: to this tree their places are free.
//! - Ranges do not touch: adjacent ones are merged. The group's info item counts ranges.
//! - A group is kept in bitmaps once its ranges would take more space as items of their own, and in
//!   ranges again once they are clearly fewer. The thresholds are the kernel's.

mod bitmaps;
mod extents;

use std::ops::Range;

use larder_format::item::{
    FREE_SPACE_BITMAP_BITS, FREE_SPACE_BITMAP_BYTES, FreeSpaceInfo, USING_BITMAPS,
};
use larder_format::node::ITEM_HEADER_SIZE;
use larder_format::{FormatError, ItemType, Key, read_exact_item};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::items::Items;

/// How far below the threshold for bitmaps a group goes back to ranges.
const HYSTERESIS: u64 = 100;

/// One block group's part of the free space tree. Addresses are logical, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFreeSpace {
    /// The block group.
    pub group: Range<u64>,
    /// Bytes in a sector.
    pub sectorsize: u32,
}

impl GroupFreeSpace {
    /// Inserts a new group, all of it free.
    pub fn create(&self, tree: &mut dyn Items) -> Result<()> {
        let info = FreeSpaceInfo { extent_count: 1.into(), flags: 0.into() };
        tree.insert(self.info_key(), info.as_bytes())?;
        tree.insert(range_key(&self.group), &[])
    }

    /// Removes all items of the group.
    pub fn delete(&self, tree: &mut dyn Items) -> Result<()> {
        let keys: Vec<Key> = self.items(tree)?.into_iter().map(|(key, _)| key).collect();
        keys.into_iter().try_for_each(|key| tree.remove(key))?;
        tree.remove(self.info_key())
    }

    /// A free range is not free any more.
    pub fn take(&self, tree: &mut dyn Items, range: &Range<u64>) -> Result<()> {
        self.change(tree, range, extents::take, |tree, range| self.clear_bits(tree, range))
    }

    /// A range becomes free.
    pub fn give(&self, tree: &mut dyn Items, range: &Range<u64>) -> Result<()> {
        let give =
            |tree: &mut dyn Items, range: &Range<u64>| extents::give(tree, &self.group, range);
        self.change(tree, range, give, |tree, range| self.set_bits(tree, range))
    }

    /// The free ranges in order.
    pub fn load(&self, tree: &dyn Items) -> Result<Vec<Range<u64>>> {
        let info = self.info(tree)?;
        let ranges = self.ranges(tree)?;
        if ranges.len() as u64 != u64::from(info.extent_count.get()) {
            let problem = format!("{} free ranges but {} counted", ranges.len(), info.extent_count);
            return Err(wrong(tree, self.info_key(), problem));
        }
        Ok(ranges)
    }

    fn change(
        &self,
        tree: &mut dyn Items,
        range: &Range<u64>,
        in_extents: impl FnOnce(&mut dyn Items, &Range<u64>) -> Result<i64>,
        in_bitmaps: impl FnOnce(&mut dyn Items, &Range<u64>) -> Result<i64>,
    ) -> Result<()> {
        assert!(
            !range.is_empty() && self.group.start <= range.start && range.end <= self.group.end
        );
        let mut info = self.info(tree)?;
        let uses_bitmaps = info.flags.get() & USING_BITMAPS != 0;
        let more = if uses_bitmaps { in_bitmaps(tree, range)? } else { in_extents(tree, range)? };
        if more == 0 {
            return Ok(());
        }
        let count = i64::from(info.extent_count.get()) + more;
        let count = u32::try_from(count)
            .map_err(|_| wrong(tree, self.info_key(), format!("{count} free ranges")))?;
        info.extent_count = count.into();
        if !uses_bitmaps && u64::from(count) > self.most_extents() {
            self.convert_to_bitmaps(tree)?;
            info.flags = (info.flags.get() | USING_BITMAPS).into();
        } else if uses_bitmaps && u64::from(count) < self.least_in_bitmaps() {
            self.convert_to_extents(tree)?;
            info.flags = (info.flags.get() & !USING_BITMAPS).into();
        }
        tree.replace(self.info_key(), info.as_bytes())
    }

    /// The most ranges that are kept as items: as many as take no more space than bitmaps.
    fn most_extents(&self) -> u64 {
        let bitmaps = (self.group.end - self.group.start).div_ceil(self.bitmap_covers());
        bitmaps * (ITEM_HEADER_SIZE + FREE_SPACE_BITMAP_BYTES) as u64 / ITEM_HEADER_SIZE as u64
    }

    /// The least number of ranges that are kept in bitmaps.
    fn least_in_bitmaps(&self) -> u64 {
        self.most_extents().saturating_sub(HYSTERESIS)
    }

    /// Bytes that a full bitmap covers.
    fn bitmap_covers(&self) -> u64 {
        FREE_SPACE_BITMAP_BITS * u64::from(self.sectorsize)
    }

    fn info_key(&self) -> Key {
        let len_bytes = self.group.end - self.group.start;
        Key::new(self.group.start, ItemType::FREE_SPACE_INFO, len_bytes)
    }

    fn info(&self, tree: &dyn Items) -> Result<FreeSpaceInfo> {
        let key = self.info_key();
        let data = tree.get(key)?.ok_or(Error::MissingItem { tree: tree.tree(), key })?;
        let info =
            read_exact_item(&data).map_err(|problem| Error::item(tree.tree(), key, problem))?;
        Ok(*info)
    }

    /// The group's items after the info item. The group's size bounds their number.
    fn items(&self, tree: &dyn Items) -> Result<Vec<(Key, Vec<u8>)>> {
        let first = Key::new(self.group.start, ItemType(ItemType::FREE_SPACE_INFO.0 + 1), 0);
        let end = Key::new(self.group.end, ItemType(0), 0);
        let Some(last) = end.predecessor() else { return Ok(Vec::new()) };
        let items = tree.range(first..=last)?;
        let is_known = |key: &Key| {
            matches!(key.item_type, ItemType::FREE_SPACE_EXTENT | ItemType::FREE_SPACE_BITMAP)
        };
        match items.iter().find(|(key, _)| !is_known(key)) {
            Some((key, _)) => Err(wrong(tree, *key, "it lies among the ranges of a group")),
            None => Ok(items),
        }
    }
}

/// An invalid item.
fn wrong(tree: &dyn Items, key: Key, problem: impl Into<String>) -> Error {
    Error::item(tree.tree(), key, FormatError::invalid("free space tree", problem))
}

fn range_key(range: &Range<u64>) -> Key {
    Key::new(range.start, ItemType::FREE_SPACE_EXTENT, range.end - range.start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::items::model::ModelTree;

    const SECTOR: u64 = 4096;
    const START: u64 = 5 << 20;

    /// Free ranges of a model that is one flag for each sector.
    fn ranges_of(free: &[bool]) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (index, _) in free.iter().enumerate().filter(|(_, is_free)| **is_free) {
            let start = START + index as u64 * SECTOR;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += SECTOR,
                _ => ranges.push(start..start + SECTOR),
            }
        }
        ranges
    }

    fn uses_bitmaps(space: &GroupFreeSpace, tree: &ModelTree) -> bool {
        space.info(tree).unwrap().flags.get() & USING_BITMAPS != 0
    }

    /// Goes over the sectors in an order that jumps about, takes every second range of `width` and
    /// gives it back; checks the tree against the model as it goes.
    fn fragment_and_mend(sectors: u64, width: u64, expects_bitmaps: bool) {
        let group = START..START + sectors * SECTOR;
        let space = GroupFreeSpace { group, sectorsize: SECTOR as u32 };
        let (mut tree, mut free) = (ModelTree::default(), vec![true; sectors as usize]);
        space.create(&mut tree).unwrap();
        let count = sectors / (2 * width);
        let step = (count / 3).max(1) | 1;
        let pieces: Vec<u64> = (0..count).map(|i| i * step % count).collect();
        let mut seen_bitmaps = false;
        for is_take in [true, false] {
            for (number, piece) in pieces.iter().enumerate() {
                let first = (piece * 2 + 1) * width;
                if free[first as usize] != is_take {
                    continue;
                }
                let range = START + first * SECTOR..START + (first + width) * SECTOR;
                let change = if is_take { GroupFreeSpace::take } else { GroupFreeSpace::give };
                change(&space, &mut tree, &range).unwrap();
                free[first as usize..(first + width) as usize].fill(!is_take);
                seen_bitmaps |= uses_bitmaps(&space, &tree);
                if number % 37 == 0 {
                    assert_eq!(space.load(&tree).unwrap(), ranges_of(&free));
                }
            }
            assert_eq!(space.load(&tree).unwrap(), ranges_of(&free));
        }
        assert_eq!(seen_bitmaps, expects_bitmaps);
        space.delete(&mut tree).unwrap();
        assert!(tree.items.is_empty());
    }

    #[test]
    fn a_fragmented_group_turns_to_bitmaps_and_back() {
        // 32 MiB are four bitmaps: up to 44 ranges are kept as ranges, and fewer than none bring
        // ranges back; 256 MiB are 32: more than 359 and fewer than 259.
        fragment_and_mend(8192, 1, true);
        fragment_and_mend(65536, 8, true);
        fragment_and_mend(65536, 2048, false);
    }

    #[test]
    fn the_last_bitmap_of_a_group_is_as_short_as_the_group() {
        fragment_and_mend(2048 + 100, 1, true);
    }

    #[test]
    fn thresholds_are_the_kernels() {
        let of = |len_bytes| GroupFreeSpace { group: 0..len_bytes, sectorsize: 4096 };
        assert_eq!((of(8 << 20).most_extents(), of(8 << 20).least_in_bitmaps()), (11, 0));
        assert_eq!((of(1 << 30).most_extents(), of(1 << 30).least_in_bitmaps()), (1438, 1338));
    }

    #[test]
    fn used_space_cannot_be_taken_and_free_space_cannot_be_freed() {
        let space = GroupFreeSpace { group: START..START + (8 << 20), sectorsize: 4096 };
        let mut tree = ModelTree::default();
        space.create(&mut tree).unwrap();
        let range = START + (1 << 20)..START + (2 << 20);
        assert!(space.give(&mut tree.clone(), &range).is_err());
        space.take(&mut tree, &range).unwrap();
        assert!(space.take(&mut tree.clone(), &range).is_err());
        assert!(space.take(&mut tree, &(START..range.end)).is_err());
    }

    proptest! {
        #[test]
        fn like_a_flag_for_each_sector(
            steps in prop::collection::vec((0_usize..4196, 1_usize..64), 1..200),
        ) {
            let sectors = 4196;
            let group = START..START + sectors as u64 * SECTOR;
            let space = GroupFreeSpace { group, sectorsize: SECTOR as u32 };
            let (mut tree, mut free) = (ModelTree::default(), vec![true; sectors]);
            space.create(&mut tree).unwrap();
            for (first, count) in steps {
                // The sectors from here on change as long as they are alike.
                let is_free = free[first];
                let alike = free[first..].iter().take(count).take_while(|f| **f == is_free).count();
                let at = |sector: usize| START + sector as u64 * SECTOR;
                let range = at(first)..at(first + alike);
                let change = if is_free { GroupFreeSpace::take } else { GroupFreeSpace::give };
                change(&space, &mut tree, &range).unwrap();
                free[first..first + alike].fill(!is_free);
            }
            prop_assert_eq!(space.load(&tree).unwrap(), ranges_of(&free));
        }
    }
}
