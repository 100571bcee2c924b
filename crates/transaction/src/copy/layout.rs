//! Copying a chunk to the layout that it moves to, while the file system is in use.
//!
//! # Invariants
//! - Everything in the block group that any state can refer to is copied: extents, and what is in use
//!   or pinned besides. What threads write meanwhile goes to both layouts.
//! - A range is read and written while no thread writes, so that the copy is never older than what
//!   it replaces. A checksum of a state says which copy is good; if content has changed since, the
//!   checksum fits none, and what is there is copied as it is.
//! - No content is made up: what has a checksum that no copy fits has none that fits afterwards. What
//!   has no checksum and cannot be read ends the move, and the chunk stays where it is.

use std::ops::Range;

use larder_format::Logical;
use larder_volume::{BlockExpectation, MovedRange};

use super::{Copier, PIECE_BYTES};
use crate::error::{Error, Result};
use crate::extent::FoundExtent;
use crate::space::Group;

/// What moving a chunk found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes of these that no copy has right: they were copied as they are.
    pub damaged_bytes: u64,
    /// Bytes of these that no device returns.
    pub unreadable_bytes: u64,
}

impl Moved {
    /// Adds what another move found.
    pub(crate) fn add(&mut self, other: &Self) {
        self.copied_bytes += other.copied_bytes;
        self.damaged_bytes += other.damaged_bytes;
        self.unreadable_bytes += other.unreadable_bytes;
    }
}

impl Copier<'_> {
    /// Copies all that a group has to the other layout of its chunk.
    pub(crate) fn copy_to_other_layout(&mut self, group: &Group) -> Result<Moved> {
        let Range { start, end } = group.range();
        let (mut at, mut moved) = (start, Moved::default());
        self.each_extent(start..end, |copier, extent| {
            copier.move_others(group, at..extent.range.start, &mut moved)?;
            at = extent.range.end;
            if extent.is_tree_block {
                copier.move_block(extent, &mut moved)
            } else {
                copier.move_data(extent.range.clone(), &mut moved)
            }
        })?;
        self.move_others(group, at..end, &mut moved)?;
        Ok(moved)
    }

    /// Copies what is in use between extents: space that was allocated and has no item yet, and
    /// what earlier states have.
    fn move_others(&mut self, group: &Group, window: Range<u64>, moved: &mut Moved) -> Result<()> {
        if window.is_empty() {
            return Ok(());
        }
        for taken in group.taken_in(window) {
            for piece in pieces(taken) {
                self.move_range(piece, moved, Self::read_unproven)?;
            }
        }
        Ok(())
    }

    fn move_block(&mut self, extent: &FoundExtent, moved: &mut Moved) -> Result<()> {
        let generation = Some(extent.generation);
        let expected = BlockExpectation { generation, ..BlockExpectation::default() };
        self.move_range(extent.range.clone(), moved, |copier, piece, buf| {
            match copier.volume.read_tree_block(Logical(piece.start), &expected, buf) {
                Ok(_) => Ok(MovedRange::Sound),
                Err(_) => Ok(copier.read_damaged(piece, buf)),
            }
        })
    }

    fn move_data(&mut self, range: Range<u64>, moved: &mut Moved) -> Result<()> {
        for piece in pieces(range.clone()) {
            let sums = self.checksums_of(piece.clone())?;
            let mut at = piece.start;
            for run in sums.chunk_by(|a, b| a.is_some() == b.is_some()) {
                let end = at + run.len() as u64 * self.sectorsize();
                self.move_run(at..end, run, moved)?;
                at = end;
            }
            self.tell(piece.end - range.start)?;
        }
        Ok(())
    }

    /// Copies sectors that all have checksums, or all have none; one by one if not all are good.
    fn move_run(
        &mut self,
        run: Range<u64>,
        sums: &[Option<Vec<u8>>],
        moved: &mut Moved,
    ) -> Result<()> {
        let all: Vec<u8> = sums.iter().flatten().flatten().copied().collect();
        let wanted = Some(all).filter(|all| !all.is_empty());
        let mut is_good = true;
        let mut trial = Moved::default();
        self.move_range(run.clone(), &mut trial, |copier, piece, buf| {
            let read = copier.volume.read_data(Logical(piece.start), buf, wanted.as_deref());
            is_good = read.is_ok();
            Ok(MovedRange::Sound)
        })?;
        if is_good {
            moved.copied_bytes += trial.copied_bytes;
            return Ok(());
        }
        for (sector, sum) in (run.start..).step_by(self.sectorsize() as usize).zip(sums) {
            let sector = sector..sector + self.sectorsize();
            self.move_range(sector, moved, |copier, piece, buf| {
                let verified = |sum: &Vec<u8>| {
                    copier.volume.read_data(Logical(piece.start), &mut buf[..], Some(sum)).is_ok()
                };
                match sum.as_ref().map(verified) {
                    Some(true) => Ok(MovedRange::Sound),
                    Some(false) => Ok(copier.read_damaged(piece, buf)),
                    None => copier.read_unproven(piece, buf),
                }
            })?;
        }
        Ok(())
    }

    /// Reads a range that has no checksum.
    fn read_unproven(&self, range: Range<u64>, buf: &mut [u8]) -> Result<MovedRange> {
        match self.read_raw(range, buf) {
            None => Ok(MovedRange::Sound),
            Some(logical) => Err(Error::Unreadable { logical }),
        }
    }

    /// Reads a range of which no copy fits its checksum.
    fn read_damaged(&self, range: Range<u64>, buf: &mut [u8]) -> MovedRange {
        match self.read_raw(range, buf) {
            None => MovedRange::Damaged,
            Some(_) => MovedRange::Unreadable,
        }
    }

    /// Reads a range as it is on any device. Returns the first sector that no device returns. Those
    /// are zeros.
    fn read_raw(&self, range: Range<u64>, buf: &mut [u8]) -> Option<Logical> {
        let read = |at: u64, buf: &mut [u8]| self.volume.read_data(Logical(at), buf, None).is_ok();
        if read(range.start, buf) {
            return None;
        }
        let sectorsize = self.sectorsize() as usize;
        let mut first = None;
        for (at, sector) in (range.start..).step_by(sectorsize).zip(buf.chunks_mut(sectorsize)) {
            if !read(at, sector) {
                sector.fill(0);
                first.get_or_insert(Logical(at));
            }
        }
        first
    }

    fn move_range(
        &mut self,
        range: Range<u64>,
        moved: &mut Moved,
        read: impl FnOnce(&Self, Range<u64>, &mut [u8]) -> Result<MovedRange>,
    ) -> Result<()> {
        let len_bytes = range.end - range.start;
        let mut buf = vec![0; len_bytes as usize];
        let logical = Logical(range.start);
        let how = self.volume.copy_to_other(logical, &mut buf, |buf| read(self, range, buf))?;
        moved.copied_bytes += len_bytes;
        match how {
            MovedRange::Sound => {}
            MovedRange::Damaged => moved.damaged_bytes += len_bytes,
            MovedRange::Unreadable => moved.unreadable_bytes += len_bytes,
        }
        if how != MovedRange::Sound {
            tracing::warn!("{len_bytes} bytes at {logical} are {how} on all devices, and stay so");
        }
        Ok(())
    }
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(PIECE_BYTES as usize).map(move |start| start..end.min(start + PIECE_BYTES))
}
