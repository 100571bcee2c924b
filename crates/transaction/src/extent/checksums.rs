//! Checksums of data: one for each sector, runs of them in items.
//!
//! # Invariants
//! - No two items cover the same sector.
//! - An item is no longer than the limit, so that two of them fit into a leaf.

use larder_format::item::csum_count;
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::objectid::EXTENT_CSUM;
use larder_format::{ChecksumType, ItemType, Key, Logical};

use crate::error::{Error, Result};
use crate::items::Items;

/// The longest item, whatever the size of tree blocks.
const MOST_ITEM_BYTES: usize = 4096;

/// The checksum tree of a file system with these properties.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumItems {
    /// Bytes in a tree block.
    pub nodesize: u32,
    /// Bytes in a sector.
    pub sectorsize: u32,
    /// The algorithm.
    pub checksum_type: ChecksumType,
}

/// An item of the tree.
struct Run {
    key: Key,
    sums: Vec<u8>,
}

impl ChecksumItems {
    /// Adds the checksums of the sectors from `start` on, in place of existing ones.
    pub fn insert(&self, tree: &mut dyn Items, start: Logical, mut sums: &[u8]) -> Result<()> {
        let sectors = sums.len() / self.sum_bytes();
        self.remove(tree, start, sectors as u64 * u64::from(self.sectorsize))?;
        let mut at = start;
        if let Some(run) = self.run_before(tree, start)?.filter(|run| self.end_of(run) == start.0) {
            let room = self.most_bytes().saturating_sub(run.sums.len());
            let (head, rest) = sums.split_at(room.min(sums.len()));
            if !head.is_empty() {
                tree.replace(run.key, &[&run.sums, head].concat())?;
                at = Logical(at.0 + self.covered_bytes(head.len()));
                sums = rest;
            }
        }
        for part in sums.chunks(self.most_bytes()) {
            tree.insert(key_at(at.0), part)?;
            at = Logical(at.0 + self.covered_bytes(part.len()));
        }
        Ok(())
    }

    /// Removes the checksums of all sectors in a range; some or all may have none.
    pub fn remove(&self, tree: &mut dyn Items, start: Logical, len_bytes: u64) -> Result<()> {
        let end = start.0 + len_bytes;
        if let Some(run) = self.run_before(tree, start)? {
            self.cut(tree, &run, start.0, end)?;
        }
        while let Some((key, sums)) = tree.at_or_after(key_at(start.0))? {
            if key >= key_at(end) {
                break;
            }
            let run = self.checked(tree, key, sums)?;
            self.cut(tree, &run, start.0, end)?;
        }
        Ok(())
    }

    /// Removes `start..end` from a run.
    fn cut(&self, tree: &mut dyn Items, run: &Run, start: u64, end: u64) -> Result<()> {
        let (run_start, run_end) = (run.key.offset, self.end_of(run));
        if run_end <= start {
            return Ok(());
        }
        let bytes_up_to = |address: u64| {
            ((address - run_start) / u64::from(self.sectorsize)) as usize * self.sum_bytes()
        };
        if run_start < start {
            tree.replace(run.key, &run.sums[..bytes_up_to(start)])?;
        } else {
            tree.remove(run.key)?;
        }
        if end < run_end {
            tree.insert(key_at(end), &run.sums[bytes_up_to(end)..])?;
        }
        Ok(())
    }

    /// The last run that starts before `start`.
    fn run_before(&self, tree: &dyn Items, start: Logical) -> Result<Option<Run>> {
        let Some(before) = key_at(start.0).predecessor() else { return Ok(None) };
        match tree.at_or_before(before)? {
            Some((key, sums))
                if (key.objectid, key.item_type) == (EXTENT_CSUM, ItemType::EXTENT_CSUM) =>
            {
                self.checked(tree, key, sums).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn checked(&self, tree: &dyn Items, key: Key, sums: Vec<u8>) -> Result<Run> {
        csum_count(sums.len(), self.checksum_type)
            .map_err(|problem| Error::item(tree.tree(), key, problem))?;
        Ok(Run { key, sums })
    }

    fn end_of(&self, run: &Run) -> u64 {
        run.key.offset.saturating_add(self.covered_bytes(run.sums.len()))
    }

    /// Bytes of data that so many bytes of checksums cover.
    fn covered_bytes(&self, sums_bytes: usize) -> u64 {
        (sums_bytes / self.sum_bytes()) as u64 * u64::from(self.sectorsize)
    }

    fn sum_bytes(&self) -> usize {
        self.checksum_type.size()
    }

    /// The longest item: one checksum less than half of a leaf.
    fn most_bytes(&self) -> usize {
        let in_leaf = leaf_data_size(self.nodesize as usize) - 2 * ITEM_HEADER_SIZE;
        let most = (in_leaf - self.sum_bytes()).min(MOST_ITEM_BYTES);
        most - most % self.sum_bytes()
    }
}

fn key_at(logical: u64) -> Key {
    Key::new(EXTENT_CSUM, ItemType::EXTENT_CSUM, logical)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::items::model::ModelTree;

    const SECTOR: u64 = 4096;

    /// The checksum of each sector in the tree; fails if an invariant is broken.
    fn sectors(items: &ChecksumItems, tree: &ModelTree) -> BTreeMap<u64, Vec<u8>> {
        let mut sectors = BTreeMap::new();
        for (key, sums) in &tree.items {
            assert!(sums.len() <= items.most_bytes() && !sums.is_empty());
            for (index, sum) in (0..).zip(sums.chunks(items.sum_bytes())) {
                let sector = key.offset / SECTOR + index;
                assert!(sectors.insert(sector, sum.to_vec()).is_none(), "sector {sector} twice");
            }
        }
        sectors
    }

    proptest! {
        #[test]
        fn like_a_map_of_sectors(
            steps in prop::collection::vec((any::<bool>(), 0_u64..3000, 1_u64..1200), 1..40),
            kind in prop::sample::select(ChecksumType::ALL.to_vec()),
        ) {
            let items = ChecksumItems { nodesize: 4096, sectorsize: 4096, checksum_type: kind };
            let (mut tree, mut model) = (ModelTree::default(), BTreeMap::new());
            for (number, (is_insert, first, count)) in (0_u8..).zip(steps) {
                let start = Logical(first * SECTOR);
                model.retain(|sector, _| !(first..first + count).contains(sector));
                if is_insert {
                    let sums = vec![number; count as usize * kind.size()];
                    items.insert(&mut tree, start, &sums).unwrap();
                    model.extend((first..first + count).map(|s| (s, vec![number; kind.size()])));
                } else {
                    items.remove(&mut tree, start, count * SECTOR).unwrap();
                }
                prop_assert_eq!(&sectors(&items, &tree), &model);
            }
        }
    }
}
