//! Copying data to where it moves.

use std::ops::Range;

use larder_btree::TreeView;
use larder_format::Logical;
use larder_volume::Volume;

use crate::copy::{Moved, checksums_of};
use crate::error::{Error, Result};
use crate::extent::FoundExtent;
use crate::manager::TransactionManager;

/// Data is copied in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// An extent of data, and the space to which it moves.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) extent: FoundExtent,
    /// Where it will be. Nothing refers to that yet.
    pub(super) to: Logical,
    /// The checksums of its sectors, once it is copied.
    pub(super) sums: Option<Vec<Option<Vec<u8>>>>,
    /// What copying it found.
    pub(super) moved: Moved,
}

impl Content {
    pub(super) fn new(extent: FoundExtent, to: Logical) -> Self {
        Self { extent, to, sums: None, moved: Moved::default() }
    }

    /// The range to which it moves.
    pub(super) fn target(&self) -> Range<u64> {
        self.to.0..self.to.0 + self.extent.len_bytes()
    }

    /// Copies it if all of it has checksums, so that no thread writes it in place.
    pub(super) fn copy_if_fixed(&mut self, manager: &TransactionManager) -> Result<()> {
        let sums = self.read_sums(manager)?;
        if sums.iter().all(Option::is_some) {
            self.copy(manager.volume(), sums)?;
        }
        Ok(())
    }

    /// Copies it unless that was done. No thread writes meanwhile.
    pub(super) fn copy_rest(&mut self, manager: &TransactionManager) -> Result<()> {
        if self.sums.is_none() {
            let sums = self.read_sums(manager)?;
            self.copy(manager.volume(), sums)?;
        }
        Ok(())
    }

    fn read_sums(&self, manager: &TransactionManager) -> Result<Vec<Option<Vec<u8>>>> {
        let tree = TreeView::Live(manager.trees.system().csum.clone());
        manager.with_still_checksums(|| {
            checksums_of(&tree, manager.volume(), self.extent.range.clone())
        })
    }

    fn copy(&mut self, volume: &Volume, sums: Vec<Option<Vec<u8>>>) -> Result<()> {
        let sectorsize = u64::from(volume.sectorsize());
        let (start, mut at) = (self.extent.range.start, self.extent.range.start);
        let mut moved = Moved::default();
        for run in sums.chunk_by(|a, b| a.is_some() == b.is_some()) {
            for part in run.chunks((PIECE_BYTES / sectorsize) as usize) {
                let mut buf = vec![0; part.len() * sectorsize as usize];
                read(volume, Logical(at), part, &mut buf, &mut moved)?;
                volume.write(Logical(self.to.0 + (at - start)), &buf)?;
                moved.copied_bytes += buf.len() as u64;
                at += buf.len() as u64;
            }
        }
        (self.sums, self.moved) = (Some(sums), moved);
        Ok(())
    }
}

/// Reads sectors that all have checksums, or all have none; one by one if not all are good. No
/// content is made up: a sector with a checksum that no copy fits has none that fits afterwards.
fn read(
    volume: &Volume,
    logical: Logical,
    sums: &[Option<Vec<u8>>],
    buf: &mut [u8],
    moved: &mut Moved,
) -> Result<()> {
    let all: Vec<u8> = sums.iter().flatten().flatten().copied().collect();
    let wanted = Some(all).filter(|all| !all.is_empty());
    if volume.read_data(logical, buf, wanted.as_deref()).is_ok() {
        return Ok(());
    }
    let sectorsize = volume.sectorsize() as usize;
    for (number, (sector, sum)) in buf.chunks_mut(sectorsize).zip(sums).enumerate() {
        let at = Logical(logical.0 + (number * sectorsize) as u64);
        if volume.read_data(at, sector, sum.as_deref()).is_ok() {
            continue;
        }
        let Some(sum) = sum else { return Err(Error::Unreadable { logical: at }) };
        let how = if volume.read_data(at, sector, None).is_ok() {
            moved.damaged_bytes += sectorsize as u64;
            "damaged"
        } else {
            moved.unreadable_bytes += sectorsize as u64;
            sector.fill(0);
            if volume.checksum_type().compute(sector).as_bytes() == &sum[..] {
                sector.fill(0xff);
            }
            "unreadable"
        };
        tracing::warn!("{sectorsize} bytes at {at} are {how} on all devices, and stay so");
    }
    Ok(())
}
