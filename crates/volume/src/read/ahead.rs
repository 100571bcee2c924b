//! Readahead.

use std::ops::Range;

use larder_format::Logical;
use larder_locks::elsewhere;

use crate::chunk::Chunk;
use crate::geometry::Geometry;
use crate::problem::Unmapped;
use crate::volume::Volume;

/// The longest range that is announced.
const MAX_BYTES: u64 = 32 << 20;

impl Volume {
    /// Announces that a range, or its first 32 MiB, will be read soon. Each device that it would be
    /// read from is told once for each chunk; unmapped parts are left out.
    pub fn readahead(&self, logical: Logical, len_bytes: u64) {
        let len_bytes = len_bytes.min(MAX_BYTES);
        let geometry = self.geometry();
        let _: Result<(), Unmapped> =
            geometry.for_each_chunk(logical, len_bytes, |chunk, at, part_bytes| {
                geometry.readahead(chunk, at, part_bytes);
                Ok(())
            });
    }
}

impl Geometry {
    /// Like [`Volume::readahead`], for a range of one chunk. A device's part of it is contiguous,
    /// except for the parity in between.
    pub(super) fn readahead(&self, chunk: &Chunk, logical: Logical, len_bytes: u64) {
        let mut ranges: Vec<Option<Range<u64>>> = vec![None; chunk.stripes().len()];
        for segment in chunk.segments(logical, len_bytes) {
            let copy = self.copy_order(chunk, &segment).next().unwrap_or_default();
            let address = chunk.address(&segment, copy);
            let start = address.physical.0;
            ranges[address.stripe].get_or_insert(start..start).end = start + segment.len_bytes;
        }
        for (stripe, range) in chunk.stripes().iter().zip(ranges) {
            let device = self.device(stripe.devid).and_then(|device| device.device());
            if let (Some(device), Some(range)) = (device, range) {
                elsewhere(|| device.readahead(range.start, range.end - range.start));
            }
        }
    }
}
