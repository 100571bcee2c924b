//! Ranges of addresses that are counted once, in bounded memory.

use std::ops::Range;

use larder_filesystem::Result;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sorter::{BUFFER_BYTES, Sorted, Sorter};

/// Takes ranges in any order, which may overlap. What does not fit into memory goes to a temporary
/// file.
pub struct RangeUnion(Sorter<Span>);

/// Gives the ranges in order; those that touch are one.
pub(crate) struct Ranges {
    spans: Sorted<Span>,
    next: Option<Span>,
}

#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Span {
    start: u64,
    end: u64,
}

impl Default for RangeUnion {
    fn default() -> Self {
        Self(Sorter::new(BUFFER_BYTES))
    }
}

impl RangeUnion {
    /// Adds a range.
    pub fn add(&mut self, range: Range<u64>) -> Result<()> {
        self.0.push(Span { start: range.start, end: range.end })
    }

    /// Bytes in any of the ranges.
    pub fn sum(self) -> Result<u64> {
        let (mut ranges, mut sum) = (self.ranges()?, 0);
        while let Some(range) = ranges.next()? {
            sum += range.end - range.start;
        }
        Ok(sum)
    }

    pub(crate) fn ranges(self) -> Result<Ranges> {
        let mut spans = self.0.sorted()?;
        let next = spans.next()?;
        Ok(Ranges { spans, next })
    }
}

impl Ranges {
    pub(crate) fn next(&mut self) -> Result<Option<Range<u64>>> {
        let Some(Span { start, mut end }) = self.next.take() else { return Ok(None) };
        loop {
            self.next = self.spans.next()?;
            match self.next {
                Some(span) if span.start <= end => end = end.max(span.end),
                _ => return Ok(Some(start..end)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_once() {
        let of = |ranges: &[(u64, u64)]| {
            let mut union = RangeUnion::default();
            for (start, end) in ranges {
                union.add(*start..*end).expect("there is room");
            }
            union
        };
        let all = [(10, 20), (30, 40), (15, 17), (20, 25), (24, 31), (50, 60), (0, 5)];
        let mut ranges = of(&all).ranges().expect("they are in memory");
        let found = std::iter::from_fn(|| ranges.next().expect("they are in memory"));
        assert_eq!(found.collect::<Vec<_>>(), [0..5, 10..40, 50..60]);
        assert_eq!(of(&all).sum().expect("they are in memory"), 45);
        assert_eq!(of(&[(10, 20), (0, 100), (99, 100)]).sum().expect("they are in memory"), 100);
        assert_eq!(of(&[]).sum().expect("they are in memory"), 0);
    }
}
