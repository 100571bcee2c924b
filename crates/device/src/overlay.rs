//! Changes beside a device.
//!
//! # Invariants
//! - No call changes a byte of the device below.
//! - A read gives the last content written through the overlay, and that of the device elsewhere.
//! - Content in memory stays within the limit given. What is beyond lies in a temporary file
//!   without a name. Each changed block costs 50 bytes of memory besides.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSlice;
use std::sync::Arc;

use larder_platform::FileExt;
use parking_lot::Mutex;

use crate::device::total_len;
use crate::error::check_call;
use crate::{Device, DeviceError, Operation};

/// Bytes of a block, the unit in which changes are kept.
const BLOCK_BYTES: usize = 4096;

/// A writable device that keeps its changes to itself: the device below stays as it is.
#[derive(Debug)]
pub struct Overlay {
    below: Arc<dyn Device>,
    memory_blocks: usize,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    /// By number of block.
    blocks: BTreeMap<u64, Place>,
    in_memory: usize,
    file: Option<File>,
    in_file: u64,
}

#[derive(Debug)]
enum Place {
    Memory(Box<[u8]>),
    /// The number of the block in the temporary file.
    File(u64),
}

/// A block and what part of a request lies in it.
struct Piece {
    number: u64,
    within: std::ops::Range<usize>,
}

impl Overlay {
    /// An overlay of `below` that keeps up to `memory_bytes` of changes in memory.
    pub fn new(below: Arc<dyn Device>, memory_bytes: usize) -> Self {
        Self { below, memory_blocks: memory_bytes / BLOCK_BYTES, changes: Mutex::default() }
    }

    /// The device below.
    pub fn below(&self) -> &Arc<dyn Device> {
        &self.below
    }

    /// The offsets of all blocks whose content is not that of the device below, in order.
    ///
    /// # Errors
    /// If the device or the temporary file cannot be read.
    pub fn changed_offsets(&self) -> Result<Vec<u64>, DeviceError> {
        let numbers: Vec<u64> = self.changes.lock().blocks.keys().copied().collect();
        let mut changed = Vec::new();
        for number in numbers {
            let offset = number * BLOCK_BYTES as u64;
            let len = self.block_len(number);
            let (mut old, mut new) = (vec![0; len], vec![0; len]);
            self.read_at(&mut new, offset)?;
            // A block that cannot be read now is one that the change may mend.
            if self.below.read_at(&mut old, offset).is_err() || old != new {
                changed.push(offset);
            }
        }
        Ok(changed)
    }

    /// Bytes in the block at an offset of [`changed_offsets`](Self::changed_offsets): fewer than in
    /// others at the end of the device.
    pub fn block_len_at(&self, offset: u64) -> usize {
        self.block_len(offset / BLOCK_BYTES as u64)
    }

    fn block_len(&self, number: u64) -> usize {
        (self.below.len_bytes() - number * BLOCK_BYTES as u64).min(BLOCK_BYTES as u64) as usize
    }

    fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
        let (block, end) = (BLOCK_BYTES as u64, offset + len as u64);
        (offset / block..end.div_ceil(block)).map(move |number| {
            let start = number * block;
            let from = offset.saturating_sub(start) as usize;
            Piece { number, within: from..(end - start).min(block) as usize }
        })
    }

    fn io(&self, operation: Operation, source: std::io::Error) -> DeviceError {
        DeviceError::io(self, operation, 0, BLOCK_BYTES as u64, source)
    }

    fn read_block(&self, changes: &Changes, number: u64) -> Result<Option<Vec<u8>>, DeviceError> {
        Ok(match changes.blocks.get(&number) {
            None => None,
            Some(Place::Memory(bytes)) => Some(bytes.to_vec()),
            Some(Place::File(at)) => {
                let mut bytes = vec![0; self.block_len(number)];
                let file = changes.file.as_ref().expect("holds a block");
                file.read_exact_at(&mut bytes, at * BLOCK_BYTES as u64)
                    .map_err(|error| self.io(Operation::Read, error))?;
                Some(bytes)
            }
        })
    }

    fn write_block(
        &self,
        changes: &mut Changes,
        number: u64,
        bytes: Vec<u8>,
    ) -> Result<(), DeviceError> {
        match changes.blocks.get_mut(&number) {
            Some(Place::Memory(kept)) => *kept = bytes.into(),
            Some(Place::File(at)) => {
                let at = *at;
                return self.write_file(changes, at, &bytes);
            }
            None if changes.in_memory < self.memory_blocks => {
                changes.in_memory += 1;
                changes.blocks.insert(number, Place::Memory(bytes.into()));
            }
            None => {
                let at = changes.in_file;
                self.write_file(changes, at, &bytes)?;
                changes.in_file += 1;
                changes.blocks.insert(number, Place::File(at));
            }
        }
        Ok(())
    }

    fn write_file(&self, changes: &mut Changes, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let failed = |error| self.io(Operation::Write, error);
        if changes.file.is_none() {
            changes.file = Some(tempfile::tempfile().map_err(failed)?);
        }
        let file = changes.file.as_ref().expect("was made");
        file.write_all_at(bytes, at * BLOCK_BYTES as u64).map_err(failed)
    }
}

impl Device for Overlay {
    fn name(&self) -> &str {
        self.below.name()
    }

    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Read, offset, buf.len() as u64)?;
        let mut found = Vec::new();
        let changes = self.changes.lock();
        for Piece { number, within } in Self::pieces(offset, buf.len()) {
            if let Some(bytes) = self.read_block(&changes, number)? {
                found.push((number, within, bytes));
            }
        }
        drop(changes);
        let is_all = found.len() == Self::pieces(offset, buf.len()).count();
        if !is_all {
            self.below.read_at(buf, offset)?;
        }
        for (number, within, bytes) in found {
            let at = (number * BLOCK_BYTES as u64 + within.start as u64 - offset) as usize;
            buf[at..at + within.len()].copy_from_slice(&bytes[within]);
        }
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len = total_len(bufs);
        check_call(self, Operation::Write, offset, len)?;
        let whole = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<u8>>();
        let mut changes = self.changes.lock();
        for Piece { number, within } in Self::pieces(offset, whole.len()) {
            let start = number * BLOCK_BYTES as u64;
            let mut block = vec![0; self.block_len(number)];
            if within.len() < block.len() {
                match self.read_block(&changes, number)? {
                    Some(bytes) => block = bytes,
                    None => self.below.read_at(&mut block, start)?,
                }
            }
            let at = (start + within.start as u64 - offset) as usize;
            block[within.clone()].copy_from_slice(&whole[at..at + within.len()]);
            self.write_block(&mut changes, number, block)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.below.readahead(offset, len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn below() -> Arc<MemoryDevice> {
        let below = Arc::new(MemoryDevice::new("m", 5 * BLOCK_BYTES as u64 + 100));
        below.write_at(&vec![1; 5 * BLOCK_BYTES + 100], 0).unwrap();
        below
    }

    #[test]
    fn changes_are_read_back_and_stay_beside_the_device() {
        // In memory, in the file, and in both.
        for memory_bytes in [usize::MAX, 0, 2 * BLOCK_BYTES] {
            let below = below();
            let overlay = Overlay::new(Arc::clone(&below) as Arc<dyn Device>, memory_bytes);
            let mut model = vec![1; below.len_bytes() as usize];
            let places = [(10, 20), (4000, 9000), (4096, 4096), (0, 20_580), (20_500, 80), (7, 0)];
            for (byte, (at, len)) in (2..).zip(places) {
                overlay.write_at(&vec![byte; len], at as u64).unwrap();
                model[at..at + len].fill(byte);
                let mut found = vec![0; model.len()];
                overlay.read_at(&mut found, 0).unwrap();
                assert!(found == model, "{memory_bytes} {at} {len}");
            }
            let mut kept = vec![0; model.len()];
            below.read_at(&mut kept, 0).unwrap();
            assert!(kept.iter().all(|byte| *byte == 1));
        }
    }

    #[test]
    fn only_what_differs_counts_as_changed() {
        let overlay = Overlay::new(below(), 0);
        overlay.write_at(&[1; 10_000], 0).unwrap();
        assert_eq!(overlay.changed_offsets().unwrap(), [0_u64; 0]);
        overlay.write_at(&[2; 2], 4095).unwrap();
        let last = 5 * BLOCK_BYTES as u64;
        overlay.write_at(&[2; 100], last).unwrap();
        assert_eq!(overlay.changed_offsets().unwrap(), [0, 4096, last]);
        assert_eq!(overlay.block_len_at(last), 100);
    }

    #[test]
    fn calls_past_the_end_are_refused() {
        let overlay = Overlay::new(below(), 0);
        assert!(overlay.write_at(&[0; 2], overlay.len_bytes() - 1).is_err());
        assert!(overlay.read_at(&mut [0; 2], overlay.len_bytes() - 1).is_err());
        assert_eq!(overlay.changed_offsets().unwrap(), [0_u64; 0]);
    }
}
