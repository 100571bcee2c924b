//! What a segment changes, while it is written.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::map::Delta;

/// Ranges of the device that do not overlap: the last change of each byte.
#[derive(Debug, Default)]
pub(crate) struct Deltas(BTreeMap<u64, (u64, Option<u64>)>);

impl Deltas {
    /// Where the content of `range` lies in the segment, if it lies there in one piece.
    pub(crate) fn offset_of(&self, range: &Range<u64>) -> Option<u64> {
        let (start, (end, offset)) = self.0.range(..=range.start).next_back()?;
        (range.end <= *end).then_some(())?;
        Some((*offset)? + (range.start - start))
    }

    /// Records that `range` was changed, and where its content begins in the segment.
    pub(crate) fn set(&mut self, range: Range<u64>, offset: Option<u64>) {
        let first = self
            .0
            .range(..range.start)
            .next_back()
            .filter(|(_, (end, _))| *end > range.start)
            .map(|(start, _)| *start);
        let overlapping = self.0.range(range.clone()).map(|(start, _)| *start);
        let overlapping: Vec<u64> = first.into_iter().chain(overlapping).collect();
        for start in overlapping {
            let (end, at) = self.0.remove(&start).expect("it was found");
            if start < range.start {
                self.0.insert(start, (range.start, at));
            }
            if end > range.end {
                let at = at.map(|at| at + (range.end - start));
                self.0.insert(range.end, (end, at));
            }
        }
        self.0.insert(range.start, (range.end, offset));
    }

    /// How much was discarded.
    pub(crate) fn freed_bytes(&self) -> u64 {
        let freed = self.0.iter().filter(|(_, (_, offset))| offset.is_none());
        freed.map(|(start, (end, _))| end - start).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order. Neighbours that go on with one another become one.
    pub(crate) fn to_vec(&self) -> Vec<Delta> {
        let mut deltas: Vec<Delta> = Vec::with_capacity(self.0.len());
        for (start, (end, offset)) in &self.0 {
            let (start, len, offset) = (*start, end - start, *offset);
            match deltas.last_mut() {
                Some(last)
                    if last.start + last.len == start
                        && last.offset.map(|at| at + last.len) == offset =>
                {
                    last.len += len;
                }
                _ => deltas.push(Delta { start, len, offset }),
            }
        }
        deltas
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn the_last_change_of_each_byte_counts() {
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..500 {
            let (mut deltas, mut bytes) = (Deltas::default(), vec![None; 64]);
            for round in 0..20_u64 {
                let start = rng.random_range(0..60);
                let range = start..rng.random_range(start + 1..=64);
                let offset = rng.random_bool(0.8).then_some(round * 100);
                deltas.set(range.clone(), offset);
                for at in range.clone() {
                    bytes[at as usize] = Some(offset.map(|offset| offset + at - range.start));
                }
            }
            let mut found = vec![None; 64];
            for delta in deltas.to_vec() {
                for at in delta.range() {
                    let offset = delta.offset.map(|offset| offset + at - delta.start);
                    assert_eq!(found[at as usize].replace(offset), None, "no two overlap");
                    let byte = at..at + 1;
                    assert_eq!(deltas.offset_of(&byte), offset);
                }
            }
            assert_eq!(found, bytes);
        }
    }
}
