//! Removing: the entry at an address, or everything in a range.

use std::ops::Range;

use crate::edit::{Pieces, Plan};
use crate::insert::{assert_not_empty, outside};
use crate::iterate::Entry;
use crate::{RangeIndex, Value};

impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// Removes the entry that covers `point`, and returns it.
    pub fn remove(&self, point: u64) -> Option<(Range<u64>, V)> {
        if point == u64::MAX {
            return None;
        }
        self.list.edit(point, |block| {
            let Some(index) = block.covering(point) else { return Plan::Keep(None) };
            let result = Some(Entry::at(block, index).to_owned());
            Plan::Splice { replace: index..index + 1, with: Pieces::new(), result }
        })
    }

    /// Removes all that lies in `range` and returns how many addresses were covered. An entry that
    /// is cut keeps the parts outside, with the value that `keep` gives for the entry and the
    /// part. The index may call `keep` more often than there are parts.
    ///
    /// Goes from tile to tile: each step is atomic, the whole is not.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn remove_range(
        &self,
        range: Range<u64>,
        mut keep: impl FnMut(&Entry<'_, V>, Range<u64>) -> V,
    ) -> u64 {
        assert_not_empty(&range);
        let mut removed = 0;
        let mut from = range.start;
        while from < range.end {
            let (step, next) = self.remove_in_tile(from..range.end, &mut keep);
            removed += step;
            from = next;
        }
        removed
    }

    /// Removes the parts of entries in `range` that lie in the tile of its start. Returns how many
    /// addresses were covered, and up to where the range is clear.
    fn remove_in_tile(
        &self,
        range: Range<u64>,
        mut keep: impl FnMut(&Entry<'_, V>, Range<u64>) -> V,
    ) -> (u64, u64) {
        self.list.edit(range.start, |block| {
            let range = range.start..range.end.min(block.high());
            let replace = block.overlapping(&range);
            if replace.is_empty() {
                return Plan::Keep((0, range.end));
            }
            let covered = replace
                .clone()
                .map(|index| block.end(index).min(range.end) - block.key(index).max(range.start));
            let result = (covered.sum(), range.end);
            let (left, right) = outside(block, replace.clone(), &range, &mut keep);
            Plan::Splice { replace, with: left.into_iter().chain(right).collect(), result }
        })
    }
}
