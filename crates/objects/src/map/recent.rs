//! The extents since the checkpoint.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use larder_range_index::RangeIndex;

use crate::id::ObjectId;

use super::Source;

/// The segment that changed a range last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: ObjectId,
    /// Where the range's content begins there, or `None` after a discard.
    pub(crate) offset: Option<u64>,
}

impl Place {
    fn plus(self, bytes: u64) -> Self {
        Self { offset: self.offset.map(|offset| offset + bytes), ..self }
    }

    pub(crate) fn source(self) -> Option<Source> {
        let Self { segment, offset } = self;
        offset.map(|offset| Source { segment, offset })
    }
}

/// Ranges that were written or discarded since the checkpoint.
pub(crate) struct Recent(RangeIndex<Place>);

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("ranges", &self.0.len()).finish()
    }
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self(RangeIndex::new())
    }

    pub(crate) fn set(&self, range: Range<u64>, place: Place) {
        self.0.insert_splitting(range, place, |entry, part| {
            entry.value.plus(part.start - entry.start)
        });
    }

    /// Sets those parts of `range` that are not known here. No other thread changes anything
    /// meanwhile.
    pub(crate) fn set_unknown(&self, range: Range<u64>, place: Place) {
        let mut at = range.start;
        let ends = std::iter::once(range.end..range.end);
        for known in self.within(range.clone()).into_iter().map(|(known, _)| known).chain(ends) {
            if at < known.start {
                self.set(at..known.start, place.plus(at - range.start));
            }
            at = known.end;
        }
    }

    /// The parts of `range` that are known here, in order.
    pub(crate) fn within(&self, range: Range<u64>) -> Vec<(Range<u64>, Place)> {
        let reader = self.0.reader();
        let cut = |entry: larder_range_index::Entry<'_, Place>| {
            let start = entry.start.max(range.start);
            (start..entry.end.min(range.end), entry.value.plus(start - entry.start))
        };
        reader.ascending(range.clone()).map(cut).collect()
    }

    /// Forgets what `segments` changed. No other thread changes anything meanwhile.
    pub(crate) fn forget(&self, segments: &HashSet<ObjectId>) {
        let known = self.within(0..u64::MAX);
        for (range, _) in known.into_iter().filter(|(_, place)| segments.contains(&place.segment)) {
            self.0.remove_range(range, |entry, _| *entry.value);
        }
    }
}
