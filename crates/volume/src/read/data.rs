//! Reading data.

use std::ops::Range;

use larder_format::{Checksum, Logical};

use super::copy::Outdated;
use crate::chunk::{Chunk, Segment};
use crate::geometry::Geometry;
use crate::problem::{CopyProblem, FailedCopy, ReadError};
use crate::volume::Volume;

/// How data was read.
#[derive(Debug, Default)]
pub struct DataRead {
    /// The bad copies of sectors that were tried, without those on missing devices.
    pub failures: Vec<FailedCopy>,
    /// How many of these were overwritten with good content.
    pub healed: usize,
}

impl Volume {
    /// Reads data into `buf`.
    ///
    /// With `checksums`, those of the sectors one after the other, each returned sector matches its
    /// checksum. If a copy does not, other copies are tried, and the bad one is overwritten if the
    /// volume is writable. Without, a copy is good if its device says so and missed no commits. If
    /// no copy is good, readers that do without checksums get one as it is.
    ///
    /// A range on several devices is announced to them before it is read. The error is of the first
    /// part without a good copy; the content of the buffer is unspecified then.
    pub fn read_data(
        &self,
        logical: Logical,
        mut buf: &mut [u8],
        checksums: Option<&[u8]>,
    ) -> Result<DataRead, ReadError> {
        let len_bytes = buf.len() as u64;
        let sectorsize = self.sectorsize() as usize;
        let csum_size = self.checksum_type().size();
        if let Some(checksums) = checksums {
            let fits = logical.0.is_multiple_of(sectorsize as u64)
                && buf.len().is_multiple_of(sectorsize)
                && checksums.len() == buf.len() / sectorsize * csum_size;
            if !fits {
                return Err(ReadError::Misaligned { logical, len_bytes });
            }
        }
        let mut outcome = DataRead::default();
        let geometry = self.geometry();
        geometry.for_each_chunk(logical, len_bytes, |chunk, at, part_bytes| {
            if chunk.segment(at, part_bytes).len_bytes < part_bytes {
                geometry.readahead(chunk, at, part_bytes);
            }
            for segment in chunk.segments(at, part_bytes) {
                let part = buf
                    .split_off_mut(..segment.len_bytes as usize)
                    .expect("segments make up the range");
                let first = (segment.logical.0 - logical.0) as usize / sectorsize;
                let count = part.len().div_ceil(sectorsize);
                let checksums = checksums.map(|all| &all[first * csum_size..][..count * csum_size]);
                SegmentRead {
                    volume: self,
                    geometry: &geometry,
                    chunk,
                    segment,
                    checksums,
                    outcome: &mut outcome,
                }
                .read(part)?;
            }
            Ok::<_, ReadError>(())
        })?;
        outcome.failures.retain(|failure| !failure.problem.is_absence());
        Ok(outcome)
    }
}

impl Volume {
    /// Counts and reports content that is read although no checksum proves it right: a tree block,
    /// or so many sectors of data.
    pub fn note_unverified(&self, logical: Logical, count: u64) {
        let geometry = self.geometry();
        geometry.common.counters.unverified.add(count);
        geometry.common.reports.report(|left_out| {
            tracing::warn!("nothing proves the content at {logical} right{left_out}");
        });
    }
}

/// Reads one segment: copy after copy, each time only the parts that are not good yet.
struct SegmentRead<'a> {
    volume: &'a Volume,
    geometry: &'a Geometry,
    chunk: &'a Chunk,
    segment: Segment,
    /// The checksums of its sectors.
    checksums: Option<&'a [u8]>,
    outcome: &'a mut DataRead,
}

impl SegmentRead<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<(), ReadError> {
        let first_failure = self.outcome.failures.len();
        let mut copies = self.geometry.copy_order(self.chunk, &self.segment);
        let mut bad = Vec::new();
        if let Some(first) = copies.next() {
            self.read_range(first, buf, 0..buf.len(), &mut bad);
            self.read_doubtful(first, buf, first_failure, &mut bad);
        }
        for copy in copies {
            for range in std::mem::take(&mut bad) {
                self.read_range(copy, buf, range, &mut bad);
            }
        }
        if self.volume.rescue.ignore_data_checksums {
            bad = self.read_unverified(buf, &bad);
        }
        let Some(range) = bad.first() else {
            self.heal(first_failure, buf);
            return Ok(());
        };
        let logical = self.address(range.start);
        let is_there =
            |bad: &FailedCopy| bad.logical <= logical && logical.0 - bad.logical.0 < bad.len_bytes;
        let failures = self.outcome.failures.drain(first_failure..).filter(is_there).collect();
        let error = ReadError::Data { logical, len_bytes: range.len() as u64, failures };
        self.geometry.report_lost(&error);
        Err(error)
    }

    /// Reads sectors of which no copy is good as they are. Returns those that no device can read.
    fn read_unverified(&self, buf: &mut [u8], bad: &[Range<usize>]) -> Vec<Range<usize>> {
        let sectorsize = self.volume.sectorsize() as usize;
        let sectors = bad.iter().flat_map(|range| {
            let starts = range.clone().step_by(sectorsize);
            starts.map(|start| start..range.end.min(start + sectorsize))
        });
        let mut unreadable = Vec::new();
        for sector in sectors {
            let at = self.address(sector.start);
            let mut read = |copy| {
                let part = &mut buf[sector.clone()];
                self.geometry.read_copy(self.chunk, at, copy, Outdated::LastResort, part).is_ok()
            };
            if self.geometry.copy_order(self.chunk, &self.segment).any(&mut read) {
                self.volume.note_unverified(at, 1);
            } else {
                unreadable.push(sector);
            }
        }
        unreadable
    }

    /// Reads the bad parts of a copy again whose device may give something else now.
    fn read_doubtful(
        &mut self,
        copy: usize,
        buf: &mut [u8],
        first_failure: usize,
        bad: &mut Vec<Range<usize>>,
    ) {
        let is_doubtful = |range: &Range<usize>| {
            let (at, len_bytes) = (self.address(range.start), range.len() as u64);
            self.geometry.doubt(self.chunk, at, len_bytes, copy)
        };
        if bad.is_empty() || bad.iter().filter(|range| is_doubtful(range)).count() == 0 {
            return;
        }
        self.outcome.failures.truncate(first_failure);
        for range in std::mem::take(bad) {
            self.read_range(copy, buf, range, bad);
        }
    }

    fn address(&self, at: usize) -> Logical {
        Logical(self.segment.logical.0 + at as u64)
    }

    /// Reads `range` of the segment from one copy, and adds the bad parts to `bad`. If a device
    /// fails a long read, its sectors are read one by one.
    fn read_range(
        &mut self,
        copy: usize,
        buf: &mut [u8],
        range: Range<usize>,
        bad: &mut Vec<Range<usize>>,
    ) {
        let sectorsize = self.volume.sectorsize() as usize;
        let at = self.address(range.start);
        let outdated = if self.checksums.is_some() { Outdated::LastResort } else { Outdated::Lost };
        let part = &mut buf[range.clone()];
        match self.geometry.read_copy(self.chunk, at, copy, outdated, part) {
            Ok(()) => {
                let rebuilt = copy >= self.chunk.mirrors();
                let sectors = range.len().div_ceil(sectorsize) as u64;
                self.geometry.common.counters.rebuilt.add(if rebuilt { sectors } else { 0 });
                self.verify(copy, buf, range, bad);
            }
            Err(CopyProblem::Device(_)) if range.len() > sectorsize => {
                for start in range.clone().step_by(sectorsize) {
                    let sector = start..range.end.min(start + sectorsize);
                    self.read_range(copy, buf, sector, bad);
                }
            }
            Err(problem) => self.reject(copy, range, problem, bad),
        }
    }

    fn verify(
        &mut self,
        copy: usize,
        buf: &[u8],
        range: Range<usize>,
        bad: &mut Vec<Range<usize>>,
    ) {
        let Some(checksums) = self.checksums else { return };
        let sectorsize = self.volume.sectorsize() as usize;
        let csum_type = self.volume.checksum_type();
        for start in range.step_by(sectorsize) {
            let sector = start..start + sectorsize;
            let computed = csum_type.compute(&buf[sector.clone()]);
            let wanted = &checksums[start / sectorsize * csum_type.size()..][..csum_type.size()];
            if computed.as_bytes() != wanted {
                let wanted = Checksum::from_stored(wanted).expect("as long as a checksum");
                self.reject(copy, sector, CopyProblem::Checksum { wanted, computed }, bad);
            }
        }
    }

    fn reject(
        &mut self,
        copy: usize,
        range: Range<usize>,
        problem: CopyProblem,
        bad: &mut Vec<Range<usize>>,
    ) {
        let (at, len_bytes) = (self.address(range.start), range.len() as u64);
        let failure = self.geometry.failed_copy(self.chunk, at, len_bytes, copy, problem);
        self.outcome.failures.push(failure);
        match bad.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => bad.push(range),
        }
    }

    fn heal(&mut self, first_failure: usize, good: &[u8]) {
        let DataRead { failures, healed } = &mut *self.outcome;
        for failure in &failures[first_failure..] {
            let start = (failure.logical.0 - self.segment.logical.0) as usize;
            let good = &good[start..start + failure.len_bytes as usize];
            *healed += usize::from(self.geometry.heal(self.chunk, failure, good));
        }
    }
}
