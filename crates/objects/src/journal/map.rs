//! Which ranges of the device the journal has newer content for.

use std::fmt;
use std::ops::Range;

use larder_range_index::RangeIndex;

use super::record::{Kind, Record};

/// The record that changed a range last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newer {
    record: u64,
    /// Where the range's content begins in the journal; `None` after a discard.
    pub(super) at: Option<u64>,
}

impl Newer {
    fn plus(self, bytes: u64) -> Self {
        Self { at: self.at.map(|at| at + bytes), ..self }
    }
}

pub(super) struct Map(RangeIndex<Newer>);

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("ranges", &self.0.len()).finish()
    }
}

impl Map {
    pub(super) fn new() -> Self {
        Self(RangeIndex::new())
    }

    /// A record was written.
    pub(super) fn add(&self, record: &Record) {
        let at = match record.kind {
            Kind::Write => Some(record.content_at()),
            Kind::Discard => None,
            Kind::Flush | Kind::Rest => return,
        };
        if record.len > 0 {
            let newer = Newer { record: record.position, at };
            self.0.insert_splitting(range(record), newer, |entry, part| {
                entry.value.plus(part.start - entry.start)
            });
        }
    }

    /// The device has what a record says.
    pub(super) fn remove(&self, record: &Record) {
        if !matches!(record.kind, Kind::Write | Kind::Discard) {
            return;
        }
        for (range, newer) in self.within(range(record)) {
            if newer.record == record.position {
                self.0
                    .remove_range(range, |entry, part| entry.value.plus(part.start - entry.start));
            }
        }
    }

    /// The parts of `range` that the journal has, in order.
    pub(super) fn within(&self, range: Range<u64>) -> Vec<(Range<u64>, Newer)> {
        let reader = self.0.reader();
        let cut = |entry: larder_range_index::Entry<'_, Newer>| {
            let start = entry.start.max(range.start);
            (start..entry.end.min(range.end), entry.value.plus(start - entry.start))
        };
        reader.ascending(range.clone()).map(cut).collect()
    }
}

fn range(record: &Record) -> Range<u64> {
    record.start..record.start + record.len
}
