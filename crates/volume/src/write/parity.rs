//! Writing to chunks with parity, a full stripe (row) at a time.
//!
//! # Invariants
//! - A thread that changes a row, or rebuilds from it, holds its lock, so that parity fits the
//!   data whenever no thread holds it.
//! - Everything that a row's new parity needs is read before any of the row is written.
//!
//! A row that is written in part is completed with the content of its other columns; the volume
//! knows no checksums to doubt that by. A crash between the writes of a row leaves parity that does
//! not fit (the write hole); the next write to the row makes it fit again.

use std::io::IoSlice;
use std::ops::Range;

use larder_format::Logical;

use super::WriteError;
use crate::chunk::{Chunk, DeviceAddress, Segment};
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::read::Outdated;

/// Writes `bytes` to a chunk with parity, and the parity of every row that they touch.
pub(super) fn write_rows(
    geometry: &Geometry,
    chunk: &Chunk,
    logical: Logical,
    mut bytes: &[u8],
) -> Result<(), WriteError> {
    let mut at = logical;
    while !bytes.is_empty() {
        let row_end = chunk.row_start(chunk.segment(at, 1).row + 1);
        let part_bytes = bytes.len().min((row_end.0 - at.0) as usize);
        let (part, rest) = bytes.split_at(part_bytes);
        RowWrite::new(geometry, chunk, at, part).write()?;
        (at, bytes) = (row_end, rest);
    }
    Ok(())
}

/// A row that is being written.
struct RowWrite<'a> {
    geometry: &'a Geometry,
    chunk: &'a Chunk,
    row: u64,
    /// Bytes of each cell that change, and with them those of parity.
    interval: Range<u64>,
    /// The new bytes, by data column.
    parts: Vec<(Segment, &'a [u8])>,
}

impl<'a> RowWrite<'a> {
    fn new(
        geometry: &'a Geometry,
        chunk: &'a Chunk,
        logical: Logical,
        mut bytes: &'a [u8],
    ) -> Self {
        let mut parts = Vec::new();
        for segment in chunk.segments(logical, bytes.len() as u64) {
            let (part, rest) = bytes.split_at(segment.len_bytes as usize);
            parts.push((segment, part));
            bytes = rest;
        }
        let start = parts.iter().map(|(segment, _)| segment.within_bytes).min();
        let end = parts.iter().map(|(segment, _)| segment.within_bytes + segment.len_bytes).max();
        let interval = start.unwrap_or_default()..end.unwrap_or_default();
        let row = chunk.segment(logical, 1).row;
        Self { geometry, chunk, row, interval, parts }
    }

    fn interval_bytes(&self) -> usize {
        (self.interval.end - self.interval.start) as usize
    }

    /// The new bytes of a column, and their offset in the interval.
    fn part(&self, column: usize) -> Option<(usize, &'a [u8])> {
        let (segment, part) = self.parts.iter().find(|(segment, _)| segment.column == column)?;
        Some(((segment.within_bytes - self.interval.start) as usize, part))
    }

    /// The interval of a data column as a segment.
    fn column(&self, column: usize) -> Segment {
        let (within_bytes, len_bytes) = (self.interval.start, self.interval_bytes() as u64);
        let cell_bytes = self.chunk.row_bytes() / self.chunk.data_stripes() as u64;
        let start = self.chunk.row_start(self.row).0 + column as u64 * cell_bytes;
        let logical = Logical(start + within_bytes);
        Segment { logical, len_bytes, row: self.row, column, within_bytes }
    }

    fn parity_address(&self, parity: usize) -> DeviceAddress {
        let column = self.chunk.data_stripes() + parity;
        self.chunk.column_address(self.row, column, self.interval.start)
    }

    /// Writes the data and the parity of the row.
    fn write(&self) -> Result<(), WriteError> {
        let _row = self.geometry.lock_row(self.chunk, self.row);
        let parity = self.parity_after()?;
        for (segment, part) in &self.parts {
            self.write_all(self.chunk.address(segment, 0), part)?;
        }
        self.write_all(self.parity_address(0), parity.p())?;
        if self.chunk.profile().parities() == 2 {
            self.write_all(self.parity_address(1), parity.q())?;
        }
        Ok(())
    }

    /// The new parity of the row.
    fn parity_after(&self) -> Result<Parity, WriteError> {
        let mut parity = Parity::new(self.interval_bytes());
        let mut old = Vec::new();
        for column in (0..self.chunk.data_stripes()).rev() {
            match self.part(column) {
                Some((_, part)) if part.len() == self.interval_bytes() => {
                    parity.prepend(Some(part));
                }
                part => {
                    old.resize(self.interval_bytes(), 0);
                    self.read_column(column, &mut old)?;
                    if let Some((start, part)) = part {
                        old[start..start + part.len()].copy_from_slice(part);
                    }
                    parity.prepend(Some(&old));
                }
            }
        }
        Ok(parity)
    }

    /// Reads the content of a column, or rebuilds it.
    fn read_column(&self, column: usize, buf: &mut [u8]) -> Result<(), WriteError> {
        let segment = self.column(column);
        let address = self.chunk.address(&segment, 0);
        if !self.geometry.is_outdated(self.chunk, address.devid)
            && self.geometry.read_device(address, buf).is_ok()
        {
            return Ok(());
        }
        self.geometry.rebuild_locked(self.chunk, &segment, None, Outdated::Lost, buf).map_err(
            |problem| WriteError::Incomplete { row: self.chunk.row_start(self.row), problem },
        )
    }

    fn write_all(&self, address: DeviceAddress, bytes: &[u8]) -> Result<(), WriteError> {
        Ok(self.geometry.write_to(address, &[IoSlice::new(bytes)])?)
    }
}
