//! Verifying every copy of a range, where a read stops at the first good one.
//!
//! # Invariants
//! - Every copy is read: each mirror, and with parity each way to rebuild.
//! - Nothing is written. Bad copies are counted like those that a read finds.
//! - Without a checksum nobody knows which of two copies is right: one that is not like the first
//!   that can be read [differs](CopyProblem::Differs).

use larder_format::{Checksum, Logical};

use super::copy::Outdated;
use crate::chunk::{Chunk, Segment};
use crate::geometry::Geometry;
use crate::problem::{CopyProblem, FailedCopy, ReadError};
use crate::read::BlockExpectation;
use crate::volume::Volume;

impl Volume {
    /// Reads every copy of a tree block and checks it as [`Volume::read_tree_block`] does. Returns
    /// the bad ones, in order.
    pub fn verify_tree_block(
        &self,
        logical: Logical,
        expected: &BlockExpectation,
    ) -> Result<Vec<FailedCopy>, ReadError> {
        let mut block = vec![0; self.nodesize() as usize];
        let len_bytes = block.len() as u64;
        let geometry = self.geometry();
        let chunk = geometry.chunk_of(logical, len_bytes)?;
        let mut bad = Vec::new();
        for copy in 0..chunk.copies() {
            let verify = || {
                geometry.read_copy(chunk, logical, copy, Outdated::LastResort, &mut block)?;
                self.verify_block(logical, expected, &block)
            };
            if let Err(problem) = geometry.without_doubt(chunk, logical, len_bytes, copy, verify) {
                bad.push(geometry.failed_copy(chunk, logical, len_bytes, copy, problem));
            }
        }
        Ok(bad)
    }

    /// Reads every copy of whole sectors of data. With `checksums`, those of the sectors one after
    /// the other, each sector of each copy must match its own; without, all copies must be alike.
    /// Returns the bad sectors: for each part of the range that is in one place on each device, those
    /// of the first copy, then those of the next.
    pub fn verify_data(
        &self,
        logical: Logical,
        len_bytes: u64,
        checksums: Option<&[u8]>,
    ) -> Result<Vec<FailedCopy>, ReadError> {
        let sectorsize = u64::from(self.sectorsize());
        let csum_size = self.checksum_type().size();
        let fits = |sums: &[u8]| sums.len() as u64 == len_bytes / sectorsize * csum_size as u64;
        let is_whole = logical.0.is_multiple_of(sectorsize) && len_bytes.is_multiple_of(sectorsize);
        if !is_whole || !checksums.is_none_or(fits) {
            return Err(ReadError::Misaligned { logical, len_bytes });
        }
        let mut bad = Vec::new();
        let geometry = self.geometry();
        geometry.for_each_chunk(logical, len_bytes, |chunk, at, part_bytes| {
            for segment in chunk.segments(at, part_bytes) {
                let first = ((segment.logical.0 - logical.0) / sectorsize) as usize;
                let checksums = checksums.map(|all| &all[first * csum_size..]);
                let verified = Verified { volume: self, geometry: &geometry, chunk, segment };
                verified.find_bad(checksums, &mut bad);
            }
            Ok::<_, ReadError>(())
        })?;
        Ok(bad)
    }
}

impl Geometry {
    /// The result of `verify`, or that of a second try if the device may give something else then.
    fn without_doubt(
        &self,
        chunk: &Chunk,
        logical: Logical,
        len_bytes: u64,
        copy: usize,
        mut verify: impl FnMut() -> Result<(), CopyProblem>,
    ) -> Result<(), CopyProblem> {
        verify().or_else(|problem| {
            if self.doubt(chunk, logical, len_bytes, copy) { verify() } else { Err(problem) }
        })
    }
}

/// A segment of which all copies are verified.
struct Verified<'a> {
    volume: &'a Volume,
    geometry: &'a Geometry,
    chunk: &'a Chunk,
    segment: Segment,
}

impl Verified<'_> {
    /// Adds the bad sectors. `checksums` begins with that of the first sector.
    fn find_bad(&self, checksums: Option<&[u8]>, bad: &mut Vec<FailedCopy>) {
        let sectorsize = u64::from(self.volume.sectorsize());
        let csum_size = self.volume.checksum_type().size();
        let sectors = self.segment.len_bytes / sectorsize;
        let checksum = |sector: u64| {
            let at = sector as usize * csum_size;
            checksums.map(|sums| &sums[at..at + csum_size])
        };
        // What each sector must be like, if it has no checksum.
        let mut firsts: Vec<Option<(usize, Vec<u8>)>> = vec![None; sectors as usize];
        let mut found = vec![0; sectorsize as usize];
        let mut whole = vec![0; self.segment.len_bytes as usize];
        for copy in 0..self.chunk.copies() {
            let is_read = self.read(copy, self.segment.logical, checksums, &mut whole).is_ok();
            for (sector, first) in (0..sectors).zip(&mut firsts) {
                let logical = Logical(self.segment.logical.0 + sector * sectorsize);
                let read = &whole[(sector * sectorsize) as usize..][..sectorsize as usize];
                let mut is_new = is_read;
                let verify = || {
                    // One bad sector must not hide the others; and a second try reads again.
                    if std::mem::take(&mut is_new) {
                        found.copy_from_slice(read);
                    } else {
                        self.read(copy, logical, checksums, &mut found)?;
                    }
                    match (checksum(sector), &*first) {
                        (Some(wanted), _) => self.compare_checksum(wanted, &found),
                        (None, Some((_, first))) if *first == found => Ok(()),
                        (None, Some((first, _))) => Err(CopyProblem::Differs { from: *first }),
                        (None, None) => Ok(()),
                    }
                };
                let (geometry, chunk) = (self.geometry, self.chunk);
                match geometry.without_doubt(chunk, logical, sectorsize, copy, verify) {
                    Ok(()) if checksums.is_none() && first.is_none() => {
                        *first = Some((copy, found.clone()));
                    }
                    Ok(()) => {}
                    Err(problem) => {
                        bad.push(geometry.failed_copy(chunk, logical, sectorsize, copy, problem));
                    }
                }
            }
        }
    }

    fn read(
        &self,
        copy: usize,
        logical: Logical,
        checksums: Option<&[u8]>,
        buf: &mut [u8],
    ) -> Result<(), CopyProblem> {
        let outdated = if checksums.is_some() { Outdated::LastResort } else { Outdated::Lost };
        self.geometry.read_copy(self.chunk, logical, copy, outdated, buf)
    }

    fn compare_checksum(&self, wanted: &[u8], sector: &[u8]) -> Result<(), CopyProblem> {
        let computed = self.volume.checksum_type().compute(sector);
        if computed.as_bytes() == wanted {
            return Ok(());
        }
        let wanted = Checksum::from_stored(wanted).expect("as long as a checksum");
        Err(CopyProblem::Checksum { wanted, computed })
    }
}
