//! Parity against the data that it protects, for RAID5 and RAID6.
//!
//! Skips full stripes in which nothing is allocated: no commit wrote them.

use std::sync::Arc;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_volume::{Chunk, MappedRange};

use crate::context::Context;
use crate::evidence::ChecksumEvidence;
use crate::extents::ExtentTable;
use crate::parallel;
use crate::report::Location;

/// Reports full stripes whose parity does not match.
pub(crate) fn check(context: &Context<'_>, extents: &ExtentTable) {
    for chunk in context.chunks.iter().filter(|chunk| chunk.has_parity()) {
        let rows = allocated_rows(chunk, extents);
        parallel::map(
            context.threads,
            &rows,
            || (),
            |(), row| {
                // The progress counts data only.
                context.progress.advance(0);
                if !context.progress.is_stopped() {
                    check_row(context, chunk, *row);
                }
            },
        );
    }
}

/// The first addresses of the full stripes of a chunk that hold anything.
fn allocated_rows(chunk: &Arc<Chunk>, extents: &ExtentTable) -> Vec<u64> {
    let (start, end, row_bytes) = (chunk.logical().0, chunk.end().0, chunk.row_bytes());
    let mut rows: Vec<u64> = Vec::new();
    for extent in extents.within(start, end) {
        let first = (extent.start.max(start) - start) / row_bytes;
        let last = (extent.end().min(end) - 1 - start) / row_bytes;
        for row in (first..=last).map(|number| start + number * row_bytes) {
            if rows.last().is_none_or(|last| *last < row) {
                rows.push(row);
            }
        }
    }
    rows
}

fn check_row(context: &Context<'_>, chunk: &Chunk, row: u64) {
    let Ok(cells) = context.volume.map(larder_format::Logical(row), chunk.row_bytes()) else {
        return;
    };
    let Some(data) = read_cells(context, &cells) else { return };
    let Some(parities) = cells.first().map(|cell| cell.parities.clone()) else { return };
    let wanted = [xor(&data), reed_solomon(&data)];
    for (parity, wanted) in parities.iter().zip(wanted) {
        let mut stored = vec![0; STRIPE_LEN_BYTES as usize];
        let device =
            context.volume.device(parity.devid).and_then(|device| device.device().cloned());
        let Some(device) = device else { continue };
        let is_read = device.read_at(&mut stored, parity.physical.0).is_ok();
        if !is_read || stored != wanted {
            let location = Location::device(parity.devid).at_physical(parity.physical.0).at(row);
            context.find(location, ChecksumEvidence::Parity { row });
        }
    }
}

/// The data of a full stripe; `None` if a device is missing or cannot be read.
fn read_cells(context: &Context<'_>, cells: &[MappedRange]) -> Option<Vec<Vec<u8>>> {
    let read = |cell: &MappedRange| {
        let address = cell.mirrors.first()?;
        let mut bytes = vec![0; cell.len_bytes as usize];
        let device = context.volume.device(address.devid)?.device()?.clone();
        device.read_at(&mut bytes, address.physical.0).ok()?;
        Some(bytes)
    };
    cells.iter().map(read).collect()
}

/// P: the sum of the data.
fn xor(data: &[Vec<u8>]) -> Vec<u8> {
    let mut sum = vec![0; STRIPE_LEN_BYTES as usize];
    for cell in data {
        sum.iter_mut().zip(cell).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// Q: the sum of the data, each cell times a power of 2, in the field of 256 elements that the
/// polynomial x^8 + x^4 + x^3 + x^2 + 1 makes.
fn reed_solomon(data: &[Vec<u8>]) -> Vec<u8> {
    let double = |byte: u8| byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1d };
    let mut sum = vec![0; STRIPE_LEN_BYTES as usize];
    for cell in data.iter().rev() {
        sum.iter_mut().zip(cell).for_each(|(sum, byte)| *sum = double(*sum) ^ byte);
    }
    sum
}
