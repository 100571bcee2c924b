//! Reading: lookups, neighbours, and walks in both directions while others write.

use std::ops::Range;

use crossbeam_epoch::{self as epoch, Guard};

use crate::block::BlockRef;
use crate::search::{Spot, locate_near};
use crate::skip_list::SkipList;
use crate::{RangeIndex, Value};

/// An entry, read in place.
#[derive(Debug)]
pub struct Entry<'g, V> {
    /// First address.
    pub start: u64,
    /// First address after the entry.
    pub end: u64,
    /// The value, which stays as it was when it was read.
    pub value: &'g V,
}

impl<V> Clone for Entry<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Entry<'_, V> {}

impl<'g, V> Entry<'g, V> {
    pub(crate) fn at(block: BlockRef<'g, V>, index: usize) -> Self {
        let slot = &block.slots()[index];
        Entry { start: block.key(index), end: slot.end, value: &slot.value }
    }

    /// The addresses of the entry.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

impl<V: Clone> Entry<'_, V> {
    /// The range and a clone of the value.
    pub fn to_owned(self) -> (Range<u64>, V) {
        (self.range(), self.value.clone())
    }
}

/// Reads entries in place. Until a reader is dropped, all that it has read stays in memory, and so
/// does all that other threads retire meanwhile. So keep it for one batch of reads and no longer.
/// It cannot go to another thread.
pub struct Reader<'a, V, const KEYS: usize> {
    list: &'a SkipList<V, KEYS>,
    guard: Guard,
}

impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// Begins a batch of reads.
    pub fn reader(&self) -> Reader<'_, V, KEYS> {
        Reader { list: &self.list, guard: epoch::pin() }
    }

    /// The entry that covers `point`.
    pub fn get(&self, point: u64) -> Option<(Range<u64>, V)> {
        self.reader().get(point).map(Entry::to_owned)
    }

    /// The entry that covers `point`, or the next one after it.
    pub fn first_at_or_after(&self, point: u64) -> Option<(Range<u64>, V)> {
        self.reader().first_at_or_after(point).map(Entry::to_owned)
    }

    /// The entry that covers `point`, or the next one before it.
    pub fn last_at_or_before(&self, point: u64) -> Option<(Range<u64>, V)> {
        self.reader().last_at_or_before(point).map(Entry::to_owned)
    }
}

impl<V: Value, const KEYS: usize> Reader<'_, V, KEYS> {
    /// The entry that covers `point`.
    pub fn get(&self, point: u64) -> Option<Entry<'_, V>> {
        if point == u64::MAX {
            return None;
        }
        let block = self.list.locate(point, &self.guard).block;
        block.covering(point).map(|index| Entry::at(block, index))
    }

    /// The entry that covers `point`, or the next one after it.
    pub fn first_at_or_after(&self, point: u64) -> Option<Entry<'_, V>> {
        if point == u64::MAX {
            return None;
        }
        loop {
            let Spot { node, word, block } = self.list.locate(point, &self.guard);
            let mut index = block.count_at_or_before(point);
            if index > 0 && block.end(index - 1) > point {
                index -= 1;
            }
            if index < block.len() {
                return Some(Entry::at(block, index));
            }
            if block.high() == u64::MAX {
                return None;
            }
            // The next tile begins with the entry, provided that this one is still as it was.
            let next = locate_near(node, block.high(), &self.guard).block;
            if next.low() == block.high() && node.word() == word {
                return Some(Entry::at(next, 0));
            }
        }
    }

    /// The entry that covers `point`, or the next one before it.
    pub fn last_at_or_before(&self, point: u64) -> Option<Entry<'_, V>> {
        // Every tile except the first begins with an entry, so the answer is never further left.
        let block = self.list.locate(point.min(u64::MAX - 1), &self.guard).block;
        let index = block.count_at_or_before(point).checked_sub(1)?;
        Some(Entry::at(block, index))
    }

    /// The entries that overlap `window`, from left to right.
    ///
    /// An entry that is there, unchanged, from the beginning of the walk to its end is seen,
    /// once; one that comes, goes or is resized meanwhile may be seen or not. No two that are
    /// seen overlap.
    pub fn ascending(&self, window: Range<u64>) -> Ascending<'_, V, KEYS> {
        let end = window.end.max(window.start);
        Ascending {
            reader: self,
            spot: None,
            tile: window.start,
            seen: 0,
            window: window.start..end,
            next: 0,
        }
    }

    /// The entries that overlap `window`, from right to left; otherwise as [`Reader::ascending`].
    pub fn descending(&self, window: Range<u64>) -> Descending<'_, V, KEYS> {
        let end = window.end.max(window.start);
        Descending {
            reader: self,
            spot: None,
            tile: end,
            seen: u64::MAX,
            window: window.start..end,
            left: 0,
        }
    }
}

/// A walk from left to right. See [`Reader::ascending`].
pub struct Ascending<'r, V, const KEYS: usize> {
    reader: &'r Reader<'r, V, KEYS>,
    window: Range<u64>,
    spot: Option<Spot<'r, V>>,
    /// The next entry in the block.
    next: usize,
    /// Where the next tile begins.
    tile: u64,
    /// The end of the last entry that was returned.
    seen: u64,
}

impl<'r, V: Value, const KEYS: usize> Iterator for Ascending<'r, V, KEYS> {
    type Item = Entry<'r, V>;

    fn next(&mut self) -> Option<Entry<'r, V>> {
        let Reader { list, guard } = self.reader;
        loop {
            while let Some(Spot { block, .. }) = &self.spot
                && self.next < block.len()
                && block.key(self.next) < self.window.end
            {
                let entry = Entry::at(*block, self.next);
                self.next += 1;
                if entry.start >= self.seen {
                    self.seen = entry.end;
                    return Some(entry);
                }
            }
            if self.tile >= self.window.end {
                return None;
            }
            let spot = match &self.spot {
                Some(spot) => locate_near(spot.node, self.tile, guard),
                None => list.locate(self.tile, guard),
            };
            self.next = spot.block.overlapping(&(self.tile..self.tile + 1)).start;
            self.tile = spot.block.high();
            self.spot = Some(spot);
        }
    }
}

/// A walk from right to left. See [`Reader::descending`].
pub struct Descending<'r, V, const KEYS: usize> {
    reader: &'r Reader<'r, V, KEYS>,
    window: Range<u64>,
    spot: Option<Spot<'r, V>>,
    /// How many entries of the block are left.
    left: usize,
    /// Where the tile to the left ends.
    tile: u64,
    /// The start of the last entry that was returned.
    seen: u64,
}

impl<'r, V: Value, const KEYS: usize> Iterator for Descending<'r, V, KEYS> {
    type Item = Entry<'r, V>;

    fn next(&mut self) -> Option<Entry<'r, V>> {
        let Reader { list, guard } = self.reader;
        loop {
            while let Some(Spot { block, .. }) = &self.spot
                && self.left > 0
                && block.end(self.left - 1) > self.window.start
            {
                self.left -= 1;
                let entry = Entry::at(*block, self.left);
                if entry.end <= self.seen {
                    self.seen = entry.start;
                    return Some(entry);
                }
            }
            if self.tile <= self.window.start {
                return None;
            }
            let last = self.tile - 1;
            let spot = match &self.spot {
                Some(spot) => locate_near(spot.node, last, guard),
                None => list.locate(last, guard),
            };
            self.left = spot.block.count_at_or_before(last);
            self.tile = spot.block.low();
            self.spot = Some(spot);
        }
    }
}
