//! Where the extents of a file changed since it was last logged: what the log is updated with.
//!
//! # Invariants
//! - Outside of the ranges the file has the same extents as when it was last logged or as in the
//!   last commit, whichever was later.
//! - Ranges neither overlap nor touch. Too many of them become one that covers everything.

use std::collections::BTreeMap;
use std::ops::Range;

/// With more ranges, everything is logged.
const MOST_RANGES: usize = 64;

/// Where the extents of a file changed.
#[derive(Debug)]
pub(crate) struct ModifiedExtents {
    /// Starts and ends.
    ranges: BTreeMap<u64, u64>,
    /// The end of the file when it was last logged.
    end_of_file: u64,
}

impl Default for ModifiedExtents {
    /// For a file of which nothing is known.
    fn default() -> Self {
        Self { ranges: BTreeMap::from([(0, u64::MAX)]), end_of_file: 0 }
    }
}

impl ModifiedExtents {
    /// For a file that was just logged.
    pub(crate) fn nothing(end_of_file: u64) -> Self {
        Self { ranges: BTreeMap::new(), end_of_file }
    }

    /// Adds a range.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back()
            && to >= start
        {
            self.ranges.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        if self.ranges.len() == MOST_RANGES {
            self.ranges.clear();
            (start, end) = (0, u64::MAX);
        }
        self.ranges.insert(start, end);
    }

    /// Takes the ranges of a file that is being logged and ends at `end_of_file`, in order.
    pub(crate) fn take(&mut self, end_of_file: u64) -> Vec<Range<u64>> {
        if end_of_file != self.end_of_file {
            self.add(end_of_file.min(self.end_of_file)..u64::MAX);
            self.end_of_file = end_of_file;
        }
        std::mem::take(&mut self.ranges).into_iter().map(|(start, end)| start..end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(modified_extents: &mut ModifiedExtents, end_of_file: u64) -> Vec<(u64, u64)> {
        modified_extents
            .take(end_of_file)
            .into_iter()
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn ranges_are_merged_and_too_many_are_everything() {
        let mut modified_extents = ModifiedExtents::default();
        assert_eq!(take(&mut modified_extents, 100), [(0, u64::MAX)]);
        for (start, end) in [(50, 60), (10, 20), (20, 30), (5, 5), (58, 70), (0, 2), (25, 51)] {
            modified_extents.add(start..end);
        }
        assert_eq!(take(&mut modified_extents, 100), [(0, 2), (10, 70)]);
        assert!(take(&mut modified_extents, 100).is_empty());
        assert_eq!(take(&mut modified_extents, 40), [(40, u64::MAX)]);
        assert_eq!(take(&mut modified_extents, 90), [(40, u64::MAX)]);
        let mut add = |count: usize| {
            (0..count as u64).for_each(|number| modified_extents.add(10 * number..10 * number + 1));
            take(&mut modified_extents, 90)
        };
        assert_eq!(add(MOST_RANGES).len(), MOST_RANGES);
        assert_eq!(add(MOST_RANGES + 1), [(0, u64::MAX)]);
    }
}
