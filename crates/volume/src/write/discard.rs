//! Saying that what a range held is needed no more.

use larder_format::Logical;

use super::WriteError;
use crate::volume::Volume;

impl Volume {
    /// Says to every device that holds the range that its content is needed no more: what is read of it
    /// is undefined from now on. The caller must not read or write any of it at the same time.
    ///
    /// Ranges with parity are left as they are: what rebuilds their neighbours must not change.
    pub fn discard(&self, logical: Logical, len_bytes: u64) -> Result<(), WriteError> {
        self.check_writable()?;
        self.for_each_chunk(logical, len_bytes, |chunk, at, part_bytes| {
            if chunk.has_parity() {
                return Ok(());
            }
            for segment in chunk.segments(at, part_bytes) {
                for place in chunk.places(&segment) {
                    let device = self.device(place.devid).and_then(|device| device.written_to());
                    if let Some(device) = device {
                        device.discard(place.physical.0, segment.len_bytes)?;
                    }
                }
            }
            Ok(())
        })
    }
}
