//! Writing: to every place that holds a range.
//!
//! # Invariants
//! - Nothing is written through a volume that was opened for reading, nor to a seed.
//! - A write that returns is in every place that is there; a missing device gets nothing.
//! - Nothing is durable before a flush that follows.

mod discard;
mod parity;
mod refresh;
mod superblock;

use std::io::IoSlice;

use larder_device::DeviceError;
use larder_format::Logical;

use crate::chunk::Chunk;
use crate::member::VolumeDevice;
use crate::problem::{CopyProblem, Unmapped};
use crate::volume::Volume;

/// Why a write failed. After an error any part of the range may have changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The volume was opened for reading.
    #[error("the volume is open for reading only")]
    ReadOnly,
    /// No chunk holds the range.
    #[error(transparent)]
    Unmapped(#[from] Unmapped),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A full stripe that is written in part cannot be completed with what it held.
    #[error("the rest of the full stripe at {row}: {problem}")]
    Incomplete {
        /// First address of the full stripe.
        row: Logical,
        /// Why one of its columns cannot be read.
        problem: CopyProblem,
    },
    /// Too many devices are missing, or a device is a seed's.
    #[error("the chunk at {chunk} cannot be written: too few devices are there for it")]
    NotWritable {
        /// Logical start of the chunk.
        chunk: Logical,
    },
}

impl Volume {
    /// Writes `bytes` to every place that holds the range. The caller must not read or write any of
    /// the range at the same time.
    pub fn write(&self, logical: Logical, mut bytes: &[u8]) -> Result<(), WriteError> {
        self.check_writable()?;
        self.for_each_chunk(logical, bytes.len() as u64, |chunk, at, part_bytes| {
            let part = bytes.split_off(..part_bytes as usize).expect("parts make up the range");
            self.check_chunk_writable(chunk)?;
            if chunk.has_parity() {
                self.write_rows(chunk, at, part)
            } else {
                self.write_mirrors(chunk, at, part)
            }
        })
    }

    fn check_writable(&self) -> Result<(), WriteError> {
        if self.is_writable { Ok(()) } else { Err(WriteError::ReadOnly) }
    }

    fn check_chunk_writable(&self, chunk: &Chunk) -> Result<(), WriteError> {
        let is_lost = |devid| self.device(devid).is_none_or(|device| device.written_to().is_none());
        if chunk.survives(|stripe| is_lost(stripe.devid)) {
            Ok(())
        } else {
            Err(WriteError::NotWritable { chunk: chunk.logical() })
        }
    }

    /// Writes to mirrors: what goes to one device lies there in one piece and is one write.
    fn write_mirrors(
        &self,
        chunk: &Chunk,
        logical: Logical,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let mut columns = vec![(None, Vec::new()); chunk.data_stripes()];
        let mut rest = bytes;
        for segment in chunk.segments(logical, bytes.len() as u64) {
            let (part, after) = rest.split_at(segment.len_bytes as usize);
            let (first, parts) = &mut columns[segment.column];
            first.get_or_insert(segment);
            parts.push(IoSlice::new(part));
            rest = after;
        }
        for (first, parts) in columns {
            for place in first.iter().flat_map(|segment| chunk.places(segment)) {
                if let Some(device) = self.device(place.devid) {
                    device.write(&parts, place.physical)?;
                }
            }
        }
        Ok(())
    }

    /// Returns once every write that returned before this call is durable on every device.
    ///
    /// Flushes all devices also when one fails, and returns the first error.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.check_writable()?;
        let results: Vec<_> = self.devices.iter().map(VolumeDevice::flush).collect();
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }
}
