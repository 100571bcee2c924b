//! Good copies written over bad ones.

use std::collections::BTreeSet;

use larder_format::item::csum_count;
use larder_format::objectid::CSUM_TREE;
use larder_format::{ItemType, Logical};
use larder_volume::{BlockExpectation, Volume};

use super::block::Blocks;
use super::commit::{State, each_item};
use super::error::RepairError;

/// Writes a tree block to all its copies.
pub(super) fn block(volume: &Volume, logical: u64) -> Result<(), RepairError> {
    let mut bytes = vec![0; volume.nodesize() as usize];
    volume.read_tree_block(Logical(logical), &BlockExpectation::default(), &mut bytes)?;
    Ok(volume.write(Logical(logical), &bytes)?)
}

/// Writes sectors of data to all their copies: those that match their checksums.
pub(super) fn data(
    volume: &Volume,
    blocks: &Blocks<'_>,
    state: &State,
    sectors: &BTreeSet<u64>,
) -> Result<(), RepairError> {
    let mut outcome = Ok(());
    each_checksum(blocks, state, sectors, &mut |sector, sum| {
        let done = copy(volume, sector, sum);
        if outcome.is_ok() {
            outcome = done;
        }
    });
    outcome
}

/// Calls `visit` with each of these sectors that has a checksum, and that.
pub(super) fn each_checksum(
    blocks: &Blocks<'_>,
    state: &State,
    sectors: &BTreeSet<u64>,
    visit: &mut dyn FnMut(u64, &[u8]),
) {
    let Some(root) = state.root(CSUM_TREE).filter(|_| !sectors.is_empty()) else { return };
    let (sectorsize, kind) = (u64::from(blocks.volume.sectorsize()), blocks.volume.checksum_type());
    each_item(blocks, CSUM_TREE, root, &mut |key, sums| {
        let Ok(count) = csum_count(sums.len(), kind) else { return };
        let end = key.offset.saturating_add(count as u64 * sectorsize);
        if key.item_type != ItemType::EXTENT_CSUM || key.offset >= end {
            return;
        }
        for sector in sectors.range(key.offset..end) {
            let at = ((sector - key.offset) / sectorsize) as usize * kind.size();
            visit(*sector, &sums[at..at + kind.size()]);
        }
    });
}

fn copy(volume: &Volume, sector: u64, sum: &[u8]) -> Result<(), RepairError> {
    let mut bytes = vec![0; volume.sectorsize() as usize];
    volume.read_data(Logical(sector), &mut bytes, Some(sum))?;
    Ok(volume.write(Logical(sector), &bytes)?)
}

/// Computes the parity of a full stripe anew.
pub(super) fn parity(volume: &Volume, row: u64) -> Result<(), RepairError> {
    let Some(chunk) = volume.chunk_at(Logical(row)) else { return Ok(()) };
    let mut bytes = vec![0; chunk.row_bytes() as usize];
    volume.read_data(Logical(row), &mut bytes, None)?;
    Ok(volume.write(Logical(row), &bytes)?)
}
