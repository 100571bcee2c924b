//! The checksums of ranges that follow each other.

use std::ops::Range;

use larder_btree::{Readahead, TreeView, ViewCursor};
use larder_format::item::csum_count;
use larder_format::{ChecksumType, ItemType, Key, objectid};
use larder_transaction::{Error, Result};

/// Items that are skipped one by one, rather than by a search.
const SKIPPED_BYTES: u64 = 64 << 20;

/// A walk along the checksum tree.
pub(crate) struct ChecksumWalk {
    cursor: ViewCursor,
    kind: ChecksumType,
    sectorsize: u64,
    place: Place,
}

enum Place {
    /// Not on any item.
    Nowhere,
    On(Item),
    /// After the last one.
    End,
}

struct Item {
    range: Range<u64>,
    sums: Vec<u8>,
}

impl ChecksumWalk {
    pub(crate) fn new(tree: &TreeView, kind: ChecksumType, sectorsize: u64) -> Self {
        let cursor = tree.cursor(Readahead::Forward);
        Self { cursor, kind, sectorsize, place: Place::Nowhere }
    }

    /// Calls `visit` with the parts of a range that have checksums, and those that have none, in
    /// order. The range begins after those that were asked for before.
    pub(crate) fn parts(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(Range<u64>, Option<&[u8]>),
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.go_to(at)?;
            let (end, sums) = match &self.place {
                Place::On(item) if item.range.start <= at => {
                    let end = item.range.end.min(range.end);
                    let sum = |address: u64| {
                        ((address - item.range.start) / self.sectorsize) as usize * self.kind.size()
                    };
                    (end, Some(&item.sums[sum(at)..sum(end)]))
                }
                Place::On(item) => (item.range.start.min(range.end), None),
                Place::Nowhere | Place::End => (range.end, None),
            };
            visit(at..end, sums);
            at = end;
        }
        Ok(())
    }

    /// Moves to the item that covers `at`, or to the next one.
    fn go_to(&mut self, at: u64) -> Result<()> {
        let is_far = match &self.place {
            Place::Nowhere => true,
            Place::On(item) => at.saturating_sub(item.range.end) > SKIPPED_BYTES,
            Place::End => return Ok(()),
        };
        if is_far {
            let key = Key::new(objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM, at);
            let is_there = self.cursor.seek_last(key)? || self.cursor.next()?;
            self.load(is_there)?;
        }
        while let Place::On(item) = &self.place
            && item.range.end <= at
        {
            let is_there = self.cursor.next()?;
            self.load(is_there)?;
        }
        Ok(())
    }

    fn load(&mut self, is_there: bool) -> Result<()> {
        self.place = match self.cursor.item().filter(|_| is_there) {
            None => Place::End,
            Some((key, data)) => {
                let wrong = |problem| Error::Item { tree: objectid::CSUM_TREE, key, problem };
                let count = csum_count(data.len(), self.kind).map_err(wrong)?;
                let end = key.offset.saturating_add(count as u64 * self.sectorsize);
                Place::On(Item { range: key.offset..end, sums: data.to_vec() })
            }
        };
        Ok(())
    }
}
