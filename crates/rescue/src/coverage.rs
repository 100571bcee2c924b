//! Ranges of keys that are taken.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_format::Key;

/// All keys except the greatest, which no item has.
pub(crate) const ALL: Range<Key> = Key::MIN..Key::MAX;

/// Ranges of keys that are taken. No two overlap or touch.
#[derive(Default)]
pub(crate) struct Coverage {
    /// Ends by starts.
    taken: BTreeMap<Key, Key>,
}

impl Coverage {
    /// The parts of `range` that are free, in order.
    pub(crate) fn free(&self, range: &Range<Key>) -> Vec<Range<Key>> {
        let mut free = Vec::new();
        let mut from = range.start;
        if let Some((_, end)) = self.taken.range(..=range.start).next_back() {
            from = from.max(*end);
        }
        if from < range.end {
            for (start, end) in self.taken.range(from..range.end) {
                if from < *start {
                    free.push(from..*start);
                }
                from = *end;
            }
            if from < range.end {
                free.push(from..range.end);
            }
        }
        free
    }

    /// Takes a range that is free.
    pub(crate) fn take(&mut self, range: Range<Key>) {
        let Range { mut start, mut end } = range;
        if let Some((before, _)) = self.taken.range(..start).next_back().filter(|it| *it.1 == start)
        {
            start = *before;
        }
        if let Some(after) = self.taken.remove(&end) {
            end = after;
        }
        self.taken.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key { objectid: number, ..Key::MIN }
    }

    fn range(start: u64, end: u64) -> Range<Key> {
        key(start)..key(end)
    }

    #[test]
    fn what_is_taken_is_not_free_again() {
        let mut coverage = Coverage::default();
        coverage.take(range(10, 20));
        coverage.take(range(30, 40));
        assert_eq!(coverage.free(&range(0, 50)), [range(0, 10), range(20, 30), range(40, 50)]);
        assert_eq!(coverage.free(&range(12, 35)), [range(20, 30)]);
        assert!(coverage.free(&range(12, 18)).is_empty());
        coverage.take(range(20, 30));
        assert_eq!(coverage.taken.len(), 1);
        assert_eq!(coverage.free(&range(10, 41)), [range(40, 41)]);
    }
}
