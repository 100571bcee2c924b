//! Copying content to devices that do not have it, from those that do, while the file system is in
//! use.
//!
//! # Invariants
//! - The copier walks a durable state whose space is kept: no other content comes to where it
//!   copies. If the state is given up, it goes on with the next one, from the extent where it was.
//! - It writes only while no other thread does, and only if the state is still kept then. What can
//!   be overwritten in place, which is data without checksums, it reads then too.
//! - Copied content was verified if it has a checksum. If it has none, it comes from a device that
//!   missed nothing; otherwise it counts as lost.
//! - A range can be copied again, and from any extent on: a copy writes only where content differs.

mod layout;

use std::ops::Range;

use larder_btree::{Readahead, TreeView};
use larder_format::item::csum_count;
use larder_format::{FormatError, ItemType, Key, Logical, objectid};
use larder_volume::{BlockExpectation, Volume};

use crate::error::{Error, Result};
use crate::extent::{FoundExtent, extents};
use crate::manager::{KeptTrees, TransactionManager};

pub use layout::Moved;

/// The size of a piece of data to copy.
const PIECE_BYTES: u64 = 1 << 20;

/// Copies extents to devices that missed commits.
pub(crate) struct Copier<'m> {
    manager: &'m TransactionManager,
    volume: &'m Volume,
    state: State,
    /// Bytes that were written.
    pub(crate) copied_bytes: u64,
    /// Bytes without checksums that cannot be read from a device that is up to date.
    pub(crate) lost_bytes: u64,
    /// How much of the extent it is at was told as done: in a next state that extent comes again.
    told_bytes: u64,
    /// Is called with bytes that are done. An error ends the work.
    advance: &'m mut dyn FnMut(u64) -> Result<()>,
}

/// A durable state.
struct State {
    kept: KeptTrees,
    extents: TreeView,
    checksums: TreeView,
}

impl State {
    fn last(manager: &TransactionManager) -> Result<Self> {
        let kept = manager.keep_trees();
        let extents = kept.tree(objectid::EXTENT_TREE)?;
        let checksums = kept.tree(objectid::CSUM_TREE)?;
        Ok(Self { kept, extents, checksums })
    }
}

impl<'m> Copier<'m> {
    /// A copier of what the last durable state has, and those after it.
    pub(crate) fn new(
        manager: &'m TransactionManager,
        advance: &'m mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let (volume, state) = (&**manager.volume(), State::last(manager)?);
        Ok(Self { manager, volume, state, copied_bytes: 0, lost_bytes: 0, told_bytes: 0, advance })
    }

    /// Refuses devices that did not only miss commits, but made others: a tree block from before
    /// they missed any must still be there.
    pub(crate) fn check_history(&mut self, range: Range<u64>) -> Result<()> {
        self.each_extent(range, |copier, extent| {
            let (logical, generation) = (Logical(extent.range.start), extent.generation);
            if let Some(block) = copier.read_block(extent) {
                copier.volume.check_history(logical, generation, &block)?;
            }
            Ok(())
        })
    }

    /// Copies the extents that start in a range.
    pub(crate) fn copy(&mut self, range: Range<u64>) -> Result<()> {
        self.each_extent(range, |copier, extent| {
            if !extent.is_tree_block {
                return copier.copy_data(extent.range.clone());
            }
            // If no copy is right, a reader will find that.
            match copier.read_block(extent) {
                Some(block) => copier.refresh(Logical(extent.range.start), &block),
                None => Ok(()),
            }
        })
    }

    /// Visits the extents that start in a range. One during which the state was given up is visited
    /// again in the next state.
    fn each_extent(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(&mut Self, &FoundExtent) -> Result<()>,
    ) -> Result<()> {
        let (mut at, end) = (range.start, range.end);
        loop {
            let walked = self.walk(&mut at, end, &mut visit);
            if self.state.kept.is_kept() {
                return walked;
            }
            self.state = State::last(self.manager)?;
        }
    }

    /// The same from `at` on, until there is an error or the state was given up. Moves `at` along.
    fn walk(
        &mut self,
        at: &mut u64,
        end: u64,
        visit: &mut impl FnMut(&mut Self, &FoundExtent) -> Result<()>,
    ) -> Result<()> {
        for extent in extents(&self.state.extents, self.volume.nodesize(), *at..end) {
            let (extent, lost_bytes) = (extent?, self.lost_bytes);
            let visited = visit(self, &extent);
            if !self.state.kept.is_kept() {
                self.lost_bytes = lost_bytes;
                return Ok(());
            }
            // A commit may have removed the chunk, with all that was in it.
            match self.volume.chunk_at(Logical(extent.range.start)) {
                Some(_) => visited?,
                None => self.lost_bytes = lost_bytes,
            }
            *at = extent.range.end;
            self.tell(extent.range.end - extent.range.start)?;
            self.told_bytes = 0;
        }
        Ok(())
    }

    /// Tells that so much of an extent is done.
    fn tell(&mut self, done_bytes: u64) -> Result<()> {
        match done_bytes.checked_sub(self.told_bytes) {
            Some(more @ 1..) => {
                self.told_bytes = done_bytes;
                (self.advance)(more)
            }
            _ => Ok(()),
        }
    }

    /// Copies content of the state that no thread changes in place.
    fn refresh(&mut self, logical: Logical, good: &[u8]) -> Result<()> {
        if self.volume.has_old_copy(logical, good)? {
            let (volume, kept) = (self.volume, &self.state.kept);
            let refresh = || if kept.is_kept() { volume.refresh(logical, good) } else { Ok(0) };
            self.copied_bytes += self.volume.without_writes(refresh)?;
        }
        Ok(())
    }

    /// The content of an extent, if it is a tree block and a copy of it is right.
    fn read_block(&self, extent: &FoundExtent) -> Option<Vec<u8>> {
        let generation = Some(extent.generation).filter(|_| extent.is_tree_block)?;
        let mut block = vec![0; self.volume.nodesize() as usize];
        let expected = BlockExpectation { generation: Some(generation), ..Default::default() };
        let read = self.volume.read_tree_block(Logical(extent.range.start), &expected, &mut block);
        read.is_ok().then_some(block)
    }

    fn copy_data(&mut self, range: Range<u64>) -> Result<()> {
        for start in range.clone().step_by(PIECE_BYTES as usize) {
            let end = range.end.min(start + PIECE_BYTES);
            let sums = self.checksums_of(start..end)?;
            let mut at = start;
            for run in sums.chunk_by(|a, b| a.is_some() == b.is_some()) {
                let sectors = run.len() as u64;
                let sums: Option<Vec<u8>> =
                    run[0].is_some().then(|| run.iter().flatten().flatten().copied().collect());
                self.copy_run(at, sectors, sums.as_deref())?;
                at += sectors * self.sectorsize();
            }
            self.tell(end - range.start)?;
        }
        Ok(())
    }

    /// Copies sectors that all have checksums, or all have none; one by one if not all can be read.
    fn copy_run(&mut self, start: u64, sectors: u64, sums: Option<&[u8]>) -> Result<()> {
        let sectorsize = self.sectorsize();
        if self.copy_readable(start, sectors, sums)? {
            return Ok(());
        }
        if sectors == 1 {
            // Content with a checksum is never taken for right by mistake.
            self.lost_bytes += if sums.is_none() { sectorsize } else { 0 };
            return Ok(());
        }
        let csum_size = self.volume.checksum_type().size();
        for sector in 0..sectors {
            let sum = sums.map(|sums| &sums[sector as usize * csum_size..][..csum_size]);
            self.copy_run(start + sector * sectorsize, 1, sum)?;
        }
        Ok(())
    }

    /// Copies sectors if all of them can be read.
    fn copy_readable(&mut self, start: u64, sectors: u64, sums: Option<&[u8]>) -> Result<bool> {
        let mut data = vec![0; (sectors * self.sectorsize()) as usize];
        let (volume, logical) = (self.volume, Logical(start));
        if sums.is_some() {
            let is_read = volume.read_data(logical, &mut data, sums).is_ok();
            if is_read {
                self.refresh(logical, &data)?;
            }
            return Ok(is_read);
        }
        let copied = volume.without_writes(|| {
            let is_read = volume.read_data(logical, &mut data, None).is_ok();
            let may_write = is_read && self.state.kept.is_kept();
            may_write.then(|| volume.refresh(logical, &data)).transpose()
        })?;
        self.copied_bytes += copied.unwrap_or_default();
        Ok(copied.is_some())
    }

    fn checksums_of(&self, range: Range<u64>) -> Result<Vec<Option<Vec<u8>>>> {
        checksums_of(&self.state.checksums, self.volume, range)
    }

    fn sectorsize(&self) -> u64 {
        u64::from(self.volume.sectorsize())
    }
}

/// The checksums of the sectors of a range that have some, in the checksum tree `tree`.
pub(crate) fn checksums_of(
    tree: &TreeView,
    volume: &Volume,
    range: Range<u64>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let (sectorsize, kind) = (u64::from(volume.sectorsize()), volume.checksum_type());
    let mut sums = vec![None; ((range.end - range.start) / sectorsize) as usize];
    let key = |logical| Key::new(objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM, logical);
    let mut cursor = tree.cursor(Readahead::Forward);
    // The item that covers the start is the last whose key is not after it.
    let mut is_there = cursor.seek_last(key(range.start))? || cursor.next()?;
    while let Some((found, data)) = cursor.item().filter(|_| is_there) {
        if found >= key(range.end) {
            break;
        }
        let wrong = |problem: FormatError| Error::item(objectid::CSUM_TREE, found, problem);
        csum_count(data.len(), kind).map_err(wrong)?;
        for (number, sum) in (0..).zip(data.chunks_exact(kind.size())) {
            let sector = (found.offset + number * sectorsize).checked_sub(range.start);
            let slot = sector.and_then(|bytes| sums.get_mut((bytes / sectorsize) as usize));
            if let Some(slot) = slot {
                *slot = Some(sum.to_vec());
            }
        }
        is_there = cursor.next()?;
    }
    Ok(sums)
}
