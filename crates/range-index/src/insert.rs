//! Inserting: into a hole, in place of other entries, or between the halves of one.

use std::ops::Range;

use crate::block::{BlockRef, Piece};
use crate::edit::{Pieces, Plan};
use crate::iterate::Entry;
use crate::{RangeIndex, Value};

/// A range could not be inserted because an entry is in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the range overlaps an entry at address {at}")]
pub struct Overlap {
    /// An address of the range that another entry covers: for a new entry the lowest, for one
    /// that is resized the nearest on one side.
    pub at: u64,
}

/// # Panics
/// When `range` is empty.
pub(crate) fn assert_not_empty(range: &Range<u64>) {
    assert!(range.start < range.end, "a range has at least one address");
}

/// The parts of `entry` outside `hole`, with values as `keep` says.
pub(crate) fn remainders<V: Value>(
    entry: &Entry<'_, V>,
    hole: &Range<u64>,
    keep: &mut impl FnMut(&Entry<'_, V>, Range<u64>) -> V,
) -> (Option<Piece<V>>, Option<Piece<V>>) {
    let mut piece = |start: u64, end: u64| {
        (start < end).then(|| Piece { start, end, value: keep(entry, start..end) })
    };
    (piece(entry.start, hole.start.min(entry.end)), piece(hole.end.max(entry.start), entry.end))
}

/// The parts of the entries `overlapping` of `block` to the left and to the right of `hole`.
pub(crate) fn outside<V: Value>(
    block: BlockRef<'_, V>,
    overlapping: Range<usize>,
    hole: &Range<u64>,
    keep: &mut impl FnMut(&Entry<'_, V>, Range<u64>) -> V,
) -> (Option<Piece<V>>, Option<Piece<V>>) {
    let (mut left, mut right) = (None, None);
    for index in overlapping {
        let (before, after) = remainders(&Entry::at(block, index), hole, keep);
        left = left.or(before);
        right = after;
    }
    (left, right)
}

#[expect(clippy::needless_pass_by_value, reason = "the index takes over what it is given")]
impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// Inserts an entry, or changes nothing if another one is in its way.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn insert(&self, range: Range<u64>, value: V) -> Result<(), Overlap> {
        assert_not_empty(&range);
        self.list.edit(range.start, |block| {
            let there = block.overlapping(&range);
            if !there.is_empty() {
                return Plan::Keep(Err(Overlap { at: block.key(there.start).max(range.start) }));
            }
            if range.end > block.high() {
                // The next tile begins with an entry.
                return Plan::Keep(Err(Overlap { at: block.high() }));
            }
            let with = Pieces::from_iter([Piece {
                start: range.start,
                end: range.end,
                value: value.clone(),
            }]);
            Plan::Splice { replace: there, with, result: Ok(()) }
        })
    }

    /// Inserts an entry in place of all entries that it overlaps, which it removes as a whole and
    /// returns. One atomic step; takes time in proportion to the entries that it removes.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn insert_replacing(&self, range: Range<u64>, value: V) -> Vec<(Range<u64>, V)> {
        assert_not_empty(&range);
        self.list.edit(range.start, |block| {
            if range.end > block.high() {
                return Plan::Reach(range.end);
            }
            let replace = block.overlapping(&range);
            let result = replace.clone().map(|index| Entry::at(block, index).to_owned()).collect();
            let with = Pieces::from_iter([Piece {
                start: range.start,
                end: range.end,
                value: value.clone(),
            }]);
            Plan::Splice { replace, with, result }
        })
    }

    /// Inserts an entry and cuts away the parts of other entries that it overlaps. An entry that
    /// it cuts keeps the parts outside `range`, with the value that `keep` gives for the entry and
    /// the part. One atomic step; takes time in proportion to the entries that it cuts. The index
    /// may call `keep` more often than there are parts.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn insert_splitting(
        &self,
        range: Range<u64>,
        value: V,
        mut keep: impl FnMut(&Entry<'_, V>, Range<u64>) -> V,
    ) {
        assert_not_empty(&range);
        self.list.edit(range.start, |block| {
            if range.end > block.high() {
                return Plan::Reach(range.end);
            }
            let replace = block.overlapping(&range);
            let (left, right) = outside(block, replace.clone(), &range, &mut keep);
            let new = Piece { start: range.start, end: range.end, value: value.clone() };
            let with = left.into_iter().chain([new]).chain(right).collect();
            Plan::Splice { replace, with, result: () }
        });
    }
}
