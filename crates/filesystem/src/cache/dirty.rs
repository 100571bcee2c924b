//! Dirty data of a file.
//!
//! # Invariants
//! - It consists of runs of whole sectors that do not overlap.
//! - No run is longer than [`MOST_RUN_BYTES`]. A short one has capacity for at most twice its
//!   length. A longer one that was appended to has all the capacity that it can need: unused
//!   capacity takes no memory, and the run never moves again.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;

use crate::cache::slices::Slices;

/// The longest run: a multiple of the unit of compression.
const MOST_RUN_BYTES: usize = 1 << 20;
/// Runs up to this length are short. An allocator keeps memory of sizes between these two for each
/// thread.
const SHORT_RUN_BYTES: usize = 64 << 10;

/// Dirty data, by file offset.
#[derive(Debug, Default)]
pub(crate) struct DirtyData {
    runs: BTreeMap<u64, Vec<u8>>,
    len_bytes: u64,
    memory_bytes: u64,
}

impl DirtyData {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of data.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes of memory that the data takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// How many runs there are, some of which may adjoin.
    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Whether all of `start..end` is dirty.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            match self.covered_until(at) {
                until if until > at => at = until,
                _ => return false,
            }
        }
        true
    }

    /// The end of the run that has `at`; `at` if none has.
    pub(crate) fn covered_until(&self, at: u64) -> u64 {
        self.run_at(at).map_or(at, |(start, run)| start + run.len() as u64)
    }

    fn run_at(&self, at: u64) -> Option<(u64, &Vec<u8>)> {
        let (start, run) = self.runs.range(..=at).next_back()?;
        (at < start + run.len() as u64).then_some((*start, run))
    }

    /// The first data of a file, up to [`MOST_RUN_BYTES`], with zeros to the end of its last sector.
    pub(crate) fn adopted(mut data: Vec<u8>, sectorsize: u64) -> Self {
        debug_assert!((1..=MOST_RUN_BYTES).contains(&data.len()));
        data.resize(data.len().next_multiple_of(sectorsize as usize), 0);
        let (len_bytes, memory_bytes) = (data.len() as u64, memory_of(&data));
        Self { runs: BTreeMap::from([(0, data)]), len_bytes, memory_bytes }
    }

    /// Inserts `data` at `start`.
    pub(crate) fn write(&mut self, start: u64, mut data: &[u8]) {
        let mut at = start;
        while !data.is_empty() {
            let gap_len = self.gap_at(at, data.len()).min(MOST_RUN_BYTES);
            let last = self.runs.range_mut(..=at).next_back();
            let last = last.map(|(start, run)| (*start + run.len() as u64, run));
            let len = match last {
                Some((end, run)) if at < end => {
                    let len = data.len().min((end - at) as usize);
                    let within = run.len() - (end - at) as usize;
                    run[within..][..len].copy_from_slice(&data[..len]);
                    len
                }
                Some((end, run)) if at == end && run.len() < MOST_RUN_BYTES => {
                    let len = gap_len.min(MOST_RUN_BYTES - run.len());
                    self.memory_bytes += append(run, &data[..len]);
                    self.len_bytes += len as u64;
                    len
                }
                _ => {
                    let mut run = Vec::new();
                    self.memory_bytes += append(&mut run, &data[..gap_len]);
                    self.len_bytes += gap_len as u64;
                    self.runs.insert(at, run);
                    gap_len
                }
            };
            at += len as u64;
            data = &data[len..];
        }
    }

    /// Inserts `data`, of any length, at any `offset`. The sectors that it covers only in part are
    /// dirty already.
    pub(crate) fn write_bytes(&mut self, offset: u64, data: &[u8], sectorsize: u64) {
        let head_len =
            (offset.next_multiple_of(sectorsize) - offset).min(data.len() as u64) as usize;
        let (head, rest) = data.split_at(head_len);
        debug_assert!(head.is_empty() || self.covers(offset, offset + head_len as u64));
        let tail_len = rest.len() % sectorsize as usize;
        let tail_at = offset + (data.len() - tail_len) as u64;
        debug_assert!(tail_len == 0 || self.covers(tail_at, tail_at + tail_len as u64));
        self.write(offset, data);
    }

    /// How many bytes from `at` on are not dirty, at most `most`.
    fn gap_at(&self, at: u64, most: usize) -> usize {
        let next = self.runs.range((Excluded(at), Unbounded)).next();
        next.map_or(most, |(next, _)| most.min((next - at) as usize))
    }

    /// Copies dirty data over `buf`, which has the content at `offset` on the devices.
    pub(crate) fn overlay(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        let first = self.run_at(offset).map_or(offset, |(start, _)| start);
        for (start, run) in self.runs.range(first..end) {
            let from = offset.max(*start);
            let to = end.min(start + run.len() as u64);
            let part = &run[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
    }

    /// Drops the data from `end`, the start of a sector, on.
    pub(crate) fn truncate(&mut self, end: u64) {
        let behind = self.runs.split_off(&end);
        self.len_bytes -= behind.values().map(|run| run.len() as u64).sum::<u64>();
        self.memory_bytes -= behind.values().map(memory_of).sum::<u64>();
        if let Some((start, run)) = self.runs.iter_mut().next_back() {
            let len = run.len().min((end - start) as usize);
            self.len_bytes -= (run.len() - len) as u64;
            self.memory_bytes -= memory_of(run);
            run.truncate(len);
            self.memory_bytes += memory_of(run);
        }
    }

    /// Inserts older data where there is no newer.
    pub(crate) fn add_older(&mut self, older: Self) {
        let newer = std::mem::replace(self, older);
        for (start, run) in newer.runs {
            self.write(start, &run);
        }
    }

    /// Where there is data, in order; ranges may adjoin.
    pub(crate) fn covered(&self) -> Vec<Range<u64>> {
        self.runs.iter().map(|(start, run)| *start..start + run.len() as u64).collect()
    }

    /// The data as contiguous ranges, each with its offset.
    pub(crate) fn ranges(&self) -> Vec<(u64, Slices<'_>)> {
        let mut ranges: Vec<(u64, Slices<'_>)> = Vec::new();
        let mut end = None;
        for (start, run) in &self.runs {
            match ranges.last_mut() {
                Some((_, stretch)) if end == Some(*start) => stretch.push(run),
                _ => ranges.push((*start, Slices::from(&run[..]))),
            }
            end = Some(start + run.len() as u64);
        }
        ranges
    }
}

/// Appends to a run, and returns how many bytes more it takes.
fn append(run: &mut Vec<u8>, data: &[u8]) -> u64 {
    let (before, len) = (memory_of(run), run.len() + data.len());
    if run.capacity() < len {
        let room = if len > SHORT_RUN_BYTES { MOST_RUN_BYTES } else { len.max(2 * run.len()) };
        run.reserve_exact(room - run.len());
    }
    run.extend_from_slice(data);
    memory_of(run) - before
}

/// Bytes of memory that a run takes.
fn memory_of(run: &Vec<u8>) -> u64 {
    let is_reserve_unused = run.capacity() >= MOST_RUN_BYTES;
    if is_reserve_unused { run.len() as u64 } else { run.capacity() as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECTOR: u64 = 16;

    proptest! {
        /// It reads as an array of sectors does.
        #[test]
        fn runs_are_an_array(
            edits in prop::collection::vec((0_u64..40, 0_u64..12, any::<bool>()), 1..40),
        ) {
            let mut dirty = DirtyData::default();
            let mut model: Vec<Option<u8>> = vec![None; 1024];
            for (number, (start, len, truncates)) in (1_u8..).zip(edits) {
                let (start, end) = ((start * SECTOR) as usize, ((start + len) * SECTOR) as usize);
                if truncates {
                    dirty.truncate(end as u64);
                    model[end..].fill(None);
                } else {
                    dirty.write(start as u64, &vec![number; end - start]);
                    model[start..end].fill(Some(number));
                }
                let mut seen = vec![0; 1024];
                dirty.overlay(0, &mut seen);
                let expected: Vec<u8> = model.iter().map(|byte| byte.unwrap_or(0)).collect();
                prop_assert_eq!(seen, expected);
                let count = model.iter().flatten().count() as u64;
                prop_assert_eq!(dirty.len_bytes(), count);
                let room: u64 = dirty.runs.values().map(memory_of).sum();
                prop_assert_eq!(dirty.memory_bytes(), room);
                let first_gap = model.iter().position(Option::is_none).unwrap_or(1024) as u64;
                prop_assert!(dirty.covers(0, first_gap));
                prop_assert!(!dirty.covers(0, first_gap + 1));
                let (mut newer, mut older) = (DirtyData::default(), DirtyData::default());
                older.write(0, &[251; 64 * SECTOR as usize]);
                newer.add_older(std::mem::take(&mut dirty));
                newer.add_older(older);
                let mut seen = vec![0; 1024];
                newer.overlay(0, &mut seen);
                let expected: Vec<u8> = model.iter().map(|byte| byte.unwrap_or(251)).collect();
                prop_assert_eq!(seen, expected);
                newer.write(0, &vec![0; 64 * SECTOR as usize]);
                for (start, pieces) in newer.ranges() {
                    pieces.pieces().iter().fold(start, |at, piece| {
                        dirty.write(at, piece);
                        at + piece.len() as u64
                    });
                }
                dirty = DirtyData::default();
                for (at, byte) in model.iter().enumerate() {
                    byte.inspect(|byte| dirty.write(at as u64, &[*byte]));
                }
                let ranges = dirty.ranges();
                let total: u64 = ranges.iter().map(|(_, stretch)| stretch.len_bytes()).sum();
                prop_assert_eq!(total, count);
            }
        }
    }

    #[test]
    fn adopted_data_ends_with_zeros_and_can_grow() {
        for len in [1, 16, 17, 100 << 10] {
            let mut dirty = DirtyData::adopted(vec![7; len], SECTOR);
            let end = (len as u64).next_multiple_of(SECTOR);
            assert!(dirty.covers(0, end) && !dirty.covers(0, end + 1));
            dirty.write(end, &[8; 16]);
            let mut seen = vec![0; end as usize + 16];
            dirty.overlay(0, &mut seen);
            let gap = end as usize - len;
            assert_eq!(seen, [vec![7; len], vec![0; gap], vec![8; 16]].concat());
            assert_eq!(dirty.len_bytes(), end + 16);
            assert_eq!(dirty.memory_bytes(), dirty.runs.values().map(memory_of).sum::<u64>());
        }
    }

    #[test]
    fn appended_data_takes_little_more_than_its_length() {
        let mut dirty = DirtyData::default();
        for at in (0..5 * MOST_RUN_BYTES as u64).step_by(12 << 10) {
            dirty.write(at, &[7; 12 << 10]);
            let most = dirty.len_bytes() + dirty.len_bytes().min(MOST_RUN_BYTES as u64);
            assert!(dirty.memory_bytes() <= most, "{} {}", dirty.memory_bytes(), dirty.len_bytes());
        }
        assert!(dirty.runs.values().all(|run| run.len() <= MOST_RUN_BYTES));
    }
}
