//! Changing entries in place: another value, other limits, two from one, one from two.

use std::ops::Range;

use crate::block::{BlockRef, Piece};
use crate::edit::{Pieces, Plan};
use crate::insert::{Overlap, assert_not_empty};
use crate::iterate::Entry;
use crate::{RangeIndex, Value};

/// Why an entry did not get new limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// There is no entry at this address.
    #[error("no entry covers the address")]
    NotFound,
    /// Another entry is in the way.
    #[error(transparent)]
    Overlap(#[from] Overlap),
}

/// An address of `range` that a neighbour of entry `index` covers.
fn in_the_way<V>(block: BlockRef<'_, V>, index: usize, range: &Range<u64>) -> Option<u64> {
    if range.start < block.low() && index == 0 {
        // The tile to the left has to say. The splice would move the limit between the two, so it
        // will be planned again after the entry was moved there.
        return None;
    }
    if index > 0 && range.start < block.end(index - 1) {
        return Some(block.end(index - 1) - 1);
    }
    let free_until = block.hole_before(index + 1).end;
    (range.end > free_until).then_some(free_until)
}

impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// Replaces the value of the entry that covers `point` by `change` of it. Returns the old
    /// value, or none when no entry is there. `change` may be called more than once.
    pub fn update(&self, point: u64, mut change: impl FnMut(&V) -> V) -> Option<V> {
        if point == u64::MAX {
            return None;
        }
        self.list.edit(point, |block| {
            let Some(index) = block.covering(point) else { return Plan::Keep(None) };
            let Entry { start, end, value } = Entry::at(block, index);
            let with = Pieces::from_iter([Piece { start, end, value: change(value) }]);
            Plan::Splice { replace: index..index + 1, with, result: Some(value.clone()) }
        })
    }

    /// Gives the entry that covers `point` new limits, which overlap its old ones: extends it,
    /// shrinks it, or one at each side. Returns the old limits.
    ///
    /// # Panics
    /// When `range` is empty or does not contain `point`.
    pub fn resize(&self, point: u64, range: Range<u64>) -> Result<Range<u64>, ResizeError> {
        assert_not_empty(&range);
        assert!(range.contains(&point), "an entry keeps the address it is named by");
        self.list.edit(point, |block| {
            let Some(index) = block.covering(point) else {
                return Plan::Keep(Err(ResizeError::NotFound));
            };
            let entry = Entry::at(block, index);
            if let Some(at) = in_the_way(block, index, &range) {
                return Plan::Keep(Err(Overlap { at }.into()));
            }
            let value = entry.value.clone();
            let with = Pieces::from_iter([Piece { start: range.start, end: range.end, value }]);
            Plan::Splice { replace: index..index + 1, with, result: Ok(entry.range()) }
        })
    }

    /// Splits the entry that has `point` inside, not at its start, into two that meet there. The
    /// right one gets the value that `right` gives for the old entry, the left one keeps its
    /// value. Returns whether there was such an entry. `right` may be called more than once.
    pub fn split_at(&self, point: u64, mut right: impl FnMut(&Entry<'_, V>) -> V) -> bool {
        if point == u64::MAX {
            return false;
        }
        self.list.edit(point, |block| {
            let index = block.covering(point).filter(|&index| block.key(index) < point);
            let Some(index) = index else { return Plan::Keep(false) };
            let entry = Entry::at(block, index);
            let with = Pieces::from_iter([
                Piece { start: entry.start, end: point, value: entry.value.clone() },
                Piece { start: point, end: entry.end, value: right(&entry) },
            ]);
            Plan::Splice { replace: index..index + 1, with, result: true }
        })
    }

    /// Merges the entry that ends at `point` with the one that begins there, if `merge` gives a
    /// value for both. Returns whether they are one now. `merge` may be called more than once.
    pub fn merge_at(&self, point: u64, mut merge: impl FnMut(&V, &V) -> Option<V>) -> bool {
        if point == 0 || point == u64::MAX {
            return false;
        }
        self.list.edit(point - 1, |block| {
            let Some(index) = block.covering(point - 1) else { return Plan::Keep(false) };
            if block.end(index) != point {
                return Plan::Keep(false);
            }
            if index + 1 == block.len() {
                // The tile ends where the next entry begins.
                let meets = block.high() == point;
                return if meets { Plan::Reach(point + 1) } else { Plan::Keep(false) };
            }
            if block.key(index + 1) != point {
                return Plan::Keep(false);
            }
            let (left, right) = (Entry::at(block, index), Entry::at(block, index + 1));
            let Some(value) = merge(left.value, right.value) else { return Plan::Keep(false) };
            let with = Pieces::from_iter([Piece { start: left.start, end: right.end, value }]);
            Plan::Splice { replace: index..index + 2, with, result: true }
        })
    }
}
