//! Verifying what was read.

use std::ops::Range;

use larder_format::{ChecksumType, Logical, Physical};
use larder_volume::CopyProblem;

use crate::batch::{Batch, Content, Piece};
use crate::counters::Counters;
use crate::device::Scrub;
use crate::finding::{Fate, Finding, Subject};
use crate::repair::Bad;
use crate::verifier::{Lost, Verifier};
use crate::wanted::{Wanted, offsets};

/// The bytes of data that one thread verifies at once, if checksums take long.
const UNIT_BYTES: u64 = 128 << 10;

impl Verifier<'_> {
    /// Verifies a batch, and repairs what is bad.
    pub(crate) fn verify(&self, batch: &mut Batch) -> Result<(), Lost> {
        let mut tally = Counters::default();
        let judged = self.judge(batch, &mut tally);
        if judged.is_ok() {
            self.count(batch, &mut tally);
        }
        self.scrub.progress.change(|counters| {
            counters.add(&tally);
            if judged.is_ok() {
                counters.last_physical = batch.end();
            }
        });
        self.scrub.job.advance(tally.bytes_scrubbed());
        judged
    }

    fn judge(&self, batch: &mut Batch, tally: &mut Counters) -> Result<(), Lost> {
        let bad = match batch.problem {
            None => self.find_bad(batch),
            Some(_) => self.read_one_by_one(batch),
        };
        let mut findings = Findings::of(self.scrub);
        for bad in bad {
            let at = bad.wanted.physical;
            self.check_kept(at)?;
            findings.add(self.settle(bad, tally)?);
        }
        for piece in &batch.pieces {
            match piece.content {
                Content::Plain if batch.problem.is_none() => {
                    self.compare(batch, piece, tally, &mut findings)?;
                }
                Content::Parity(parity) => self.check_parity(piece, parity, tally, &mut findings),
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&self, batch: &Batch, tally: &mut Counters) {
        tally.data_extents_scrubbed += batch.data_extents;
        tally.tree_extents_scrubbed += batch.tree_extents;
        for piece in &batch.pieces {
            match piece.content {
                Content::Block { .. } => tally.tree_bytes_scrubbed += piece.len_bytes,
                Content::Summed(_) => tally.data_bytes_scrubbed += piece.len_bytes,
                Content::Plain => {
                    tally.data_bytes_scrubbed += piece.len_bytes;
                    tally.no_csum += piece.len_bytes / self.sectorsize();
                }
                Content::Parity(_) => {}
            }
        }
    }

    /// What is bad in a batch that was read.
    fn find_bad(&self, batch: &Batch) -> Vec<Bad> {
        let checked =
            |piece: &&Piece| matches!(piece.content, Content::Block { .. } | Content::Summed(_));
        let units: Vec<(&Piece, Range<u64>)> =
            batch.pieces.iter().filter(checked).flat_map(units).collect();
        let find = |(piece, range): &(&Piece, Range<u64>)| -> Vec<Bad> {
            let within = offsets(piece, self.sectorsize()).filter(|at| range.contains(at));
            within.filter_map(|offset| self.check(batch, piece, offset)).collect()
        };
        let is_fast =
            matches!(self.volume().checksum_type(), ChecksumType::Crc32c | ChecksumType::Xxhash);
        let found: Vec<Vec<Bad>> = if is_fast {
            units.iter().map(find).collect()
        } else {
            larder_parallel::map(&units, find)
        };
        found.into_iter().flatten().collect()
    }

    /// What is wrong with what was read at an offset of a piece, if anything. If the device may give
    /// something else, it is read once more.
    fn check(&self, batch: &Batch, piece: &Piece, offset: u64) -> Option<Bad> {
        let volume = self.volume();
        let wanted = Wanted::at(batch, piece, offset, volume);
        let bytes = &batch.bytes_of(piece)[offset as usize..][..wanted.len_bytes as usize];
        let problem = wanted.prove(bytes, volume).err()?;
        if volume.doubt_member(self.scrub.device, wanted.at_device(), wanted.len_bytes) {
            let mut again = vec![0; bytes.len()];
            let read = volume.read_member(self.scrub.device, wanted.at_device(), &mut again);
            if read.is_ok() && wanted.prove(&again, volume).is_ok() {
                return None;
            }
        }
        Some(Bad { wanted, problem, unread_sectors: 0 })
    }

    /// What is bad in a batch that could not be read at once: reads it sector by sector.
    fn read_one_by_one(&self, batch: &Batch) -> Vec<Bad> {
        let (volume, sectorsize) = (self.volume(), self.sectorsize());
        let mut found = Vec::new();
        for piece in &batch.pieces {
            if matches!(piece.content, Content::Parity(_)) {
                continue;
            }
            for offset in offsets(piece, sectorsize) {
                let wanted = Wanted::at(batch, piece, offset, volume);
                let mut bytes = vec![0; wanted.len_bytes as usize];
                let (mut unread_sectors, mut failed) = (0, None);
                for (number, sector) in bytes.chunks_mut(sectorsize as usize).enumerate() {
                    let at = Physical(wanted.physical + number as u64 * sectorsize);
                    if let Err(problem) = volume.read_member(self.scrub.device, at, sector) {
                        unread_sectors += 1;
                        failed = Some(problem);
                    }
                }
                let problem = failed.or_else(|| wanted.prove(&bytes, volume).err());
                found.extend(problem.map(|problem| Bad { wanted, problem, unread_sectors }));
            }
        }
        found
    }

    /// Compares data without checksums with the first copy.
    fn compare(
        &self,
        batch: &Batch,
        piece: &Piece,
        tally: &mut Counters,
        findings: &mut Findings<'_>,
    ) -> Result<(), Lost> {
        if self.part.copy() == 0 || self.part.chunk.has_parity() || self.is_any_stale(piece) {
            return Ok(());
        }
        let (volume, logical) = (self.volume(), Logical(piece.logical));
        let mut first = vec![0; piece.len_bytes as usize];
        if volume.read_copy(logical, 0, &mut first).is_err() || first == batch.bytes_of(piece) {
            return Ok(());
        }
        // Somebody may have written in between.
        let mut own = vec![0; piece.len_bytes as usize];
        let is_read = volume.without_writes(|| {
            self.check_kept(piece.physical)?;
            let at = Physical(piece.physical);
            let is_read = volume.read_member(self.scrub.device, at, &mut own).is_ok();
            Ok(is_read && volume.read_copy(logical, 0, &mut first).is_ok())
        })?;
        let sector_bytes = self.sectorsize() as usize;
        let sectors = own.chunks(sector_bytes).zip(first.chunks(sector_bytes)).enumerate();
        for (number, _) in sectors.filter(|(_, (own, first))| is_read && own != first) {
            let offset = number as u64 * self.sectorsize();
            tally.differing_sectors += 1;
            findings.add(Finding {
                device: self.scrub.device,
                physical: piece.physical + offset,
                logical: Some(piece.logical + offset),
                len_bytes: self.sectorsize(),
                subject: Subject::Data,
                problem: CopyProblem::Differs { from: 0 }.to_string(),
                fate: Fate::Undecided,
            });
        }
        Ok(())
    }

    /// Whether a device that has the piece missed commits.
    fn is_any_stale(&self, piece: &Piece) -> bool {
        let chunk = &self.part.chunk;
        let segment = chunk.segment(Logical(piece.logical), piece.len_bytes);
        chunk.addresses(&segment).any(|address| {
            self.state.geometry.device(address.devid).is_none_or(|member| member.is_stale())
        })
    }

    /// Compares the first cell of a row with what its parity makes of the others.
    fn check_parity(
        &self,
        piece: &Piece,
        parity: usize,
        tally: &mut Counters,
        findings: &mut Findings<'_>,
    ) {
        let (volume, row) = (self.volume(), Logical(piece.logical));
        let mut stored = vec![0; piece.len_bytes as usize];
        let mut rebuilt = vec![0; piece.len_bytes as usize];
        let is_read = volume.read_copy(row, 0, &mut stored).is_ok()
            && volume.read_copy(row, 1 + parity, &mut rebuilt).is_ok();
        if is_read && stored != rebuilt {
            tally.parity_errors += 1;
            findings.add(Finding {
                device: self.scrub.device,
                physical: piece.physical,
                logical: Some(piece.logical),
                len_bytes: piece.len_bytes,
                subject: Subject::Parity,
                problem: "it does not fit the data of its row".into(),
                fate: Fate::LeftWithParity,
            });
        }
    }
}

/// The parts of a piece that one thread verifies.
fn units(piece: &Piece) -> impl Iterator<Item = (&Piece, Range<u64>)> {
    let unit_bytes = match piece.content {
        Content::Summed(_) => UNIT_BYTES,
        _ => piece.len_bytes,
    };
    let starts = (0..piece.len_bytes).step_by(unit_bytes as usize);
    starts.map(move |start| (piece, start..piece.len_bytes.min(start + unit_bytes)))
}

/// Findings, of which neighbours with one fate are told as one.
pub(crate) struct Findings<'f> {
    scrub: &'f Scrub<'f>,
    last: Option<Finding>,
}

impl<'f> Findings<'f> {
    fn of(scrub: &'f Scrub<'f>) -> Self {
        Self { scrub, last: None }
    }

    fn add(&mut self, next: Finding) {
        if let Some(last) = &mut self.last
            && last.subject == Subject::Data
            && (last.subject, last.fate) == (next.subject, next.fate)
            && last.physical + last.len_bytes == next.physical
            && last.logical.map(|at| at + last.len_bytes) == next.logical
        {
            last.len_bytes += next.len_bytes;
            return;
        }
        if let Some(last) = self.last.replace(next) {
            (self.scrub.found)(last);
        }
    }
}

impl Drop for Findings<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            (self.scrub.found)(last);
        }
    }
}
