//! Copying content to devices that do not have it, from those that do.
//!
//! # Invariants
//! - The caller keeps what is copied as it is: no extent of the trees is overwritten or freed
//!   meanwhile. When a file system is opened, nothing else is there that could.
//! - Copied content was verified if it has a checksum. If it has none, it comes from a device that
//!   missed nothing; otherwise it counts as lost.
//! - A range can be copied again, and from any extent on: a copy writes only where content differs.

use std::ops::Range;

use larder_btree::{Readahead, Tree, TreeView};
use larder_format::item::csum_count;
use larder_format::{FormatError, ItemType, Key, Logical, objectid};
use larder_volume::{BlockExpectation, Volume};

use crate::error::{Error, Result};
use crate::extent::extents;

/// The size of a piece of data to copy.
const PIECE_BYTES: u64 = 1 << 20;

/// Copies extents of a committed state to devices that missed commits.
pub(crate) struct Copier<'v> {
    volume: &'v Volume,
    extents: TreeView,
    checksums: Tree,
    /// Bytes that were written.
    pub(crate) copied_bytes: u64,
    /// Bytes without checksums that cannot be read from a device that is up to date.
    pub(crate) lost_bytes: u64,
    /// Is called with the bytes of each piece that is done.
    advance: &'v mut dyn FnMut(u64),
}

impl<'v> Copier<'v> {
    /// A copier of what these trees have.
    pub(crate) fn new(
        volume: &'v Volume,
        extents: Tree,
        checksums: Tree,
        advance: &'v mut dyn FnMut(u64),
    ) -> Self {
        let extents = TreeView::Committed(extents);
        Self { volume, extents, checksums, copied_bytes: 0, lost_bytes: 0, advance }
    }

    /// Refuses devices that did not only miss commits, but made others: a tree block from before
    /// they missed any must still be there.
    pub(crate) fn check_history(&mut self, range: Range<u64>) -> Result<()> {
        let mut block = vec![0; self.volume.nodesize() as usize];
        for extent in extents(&self.extents, self.volume.nodesize(), range) {
            let extent = extent?;
            let (logical, generation) = (Logical(extent.range.start), extent.generation);
            if extent.is_tree_block && self.read_block(logical, generation, &mut block) {
                self.volume.check_history(logical, generation, &block)?;
            }
            (self.advance)(extent.range.end - extent.range.start);
        }
        Ok(())
    }

    /// Copies the extents that start in a range.
    pub(crate) fn copy(&mut self, range: Range<u64>) -> Result<()> {
        let mut block = vec![0; self.volume.nodesize() as usize];
        for extent in extents(&self.extents, self.volume.nodesize(), range) {
            let extent = extent?;
            if !extent.is_tree_block {
                self.copy_data(extent.range)?;
                continue;
            }
            // If no copy is right, a reader will find that.
            let logical = Logical(extent.range.start);
            if self.read_block(logical, extent.generation, &mut block) {
                self.copied_bytes += self.volume.refresh(logical, &block)?;
            }
            (self.advance)(extent.range.end - extent.range.start);
        }
        Ok(())
    }

    fn read_block(&self, logical: Logical, generation: u64, block: &mut [u8]) -> bool {
        let expected = BlockExpectation { generation: Some(generation), ..Default::default() };
        self.volume.read_tree_block(logical, &expected, block).is_ok()
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
            (self.advance)(end - start);
        }
        Ok(())
    }

    /// Copies sectors that all have checksums, or all have none; one by one if not all can be read.
    fn copy_run(&mut self, start: u64, sectors: u64, sums: Option<&[u8]>) -> Result<()> {
        let sectorsize = self.sectorsize();
        let mut data = vec![0; (sectors * sectorsize) as usize];
        if self.volume.read_data(Logical(start), &mut data, sums).is_ok() {
            self.copied_bytes += self.volume.refresh(Logical(start), &data)?;
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

    /// The checksums of the sectors of a range that have some.
    fn checksums_of(&self, range: Range<u64>) -> Result<Vec<Option<Vec<u8>>>> {
        let (sectorsize, kind) = (self.sectorsize(), self.volume.checksum_type());
        let mut sums = vec![None; ((range.end - range.start) / sectorsize) as usize];
        let key = |logical| Key::new(objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM, logical);
        let mut cursor = self.checksums.cursor(Readahead::Forward);
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

    fn sectorsize(&self) -> u64 {
        u64::from(self.volume.sectorsize())
    }
}
