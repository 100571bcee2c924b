//! Bringing devices that missed commits up to date.

use std::io::IoSlice;

use larder_format::Logical;

use super::WriteError;
use crate::volume::Volume;

impl Volume {
    /// Gives devices that missed commits what they are to hold of a range, where they hold anything
    /// else. `good` is the range as it was read from other devices. Returns how many bytes were
    /// written.
    ///
    /// # Panics
    /// When the range lies in a chunk with parity.
    pub fn refresh(&self, logical: Logical, mut good: &[u8]) -> Result<u64, WriteError> {
        self.check_writable()?;
        let mut written_bytes = 0;
        let mut found = Vec::new();
        self.for_each_chunk(logical, good.len() as u64, |chunk, at, part_bytes| {
            assert!(!chunk.has_parity(), "what has parity is brought up to date by rows");
            for segment in chunk.segments(at, part_bytes) {
                let part = good.split_off(..segment.len_bytes as usize).expect("parts of it");
                let places = chunk.places(&segment);
                for place in places.filter(|place| self.is_outdated(chunk, place.devid)) {
                    found.resize(part.len(), 0);
                    if self.read_place(place, &mut found).is_ok() && found == part {
                        continue;
                    }
                    let Some(device) = self.device(place.devid) else { continue };
                    device.write(&[IoSlice::new(part)], place.physical)?;
                    written_bytes += segment.len_bytes;
                }
            }
            Ok::<_, WriteError>(())
        })?;
        Ok(written_bytes)
    }
}
