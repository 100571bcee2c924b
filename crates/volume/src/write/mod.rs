//! Writing: to every copy of a range.
//!
//! # Invariants
//! - Nothing is written through a volume that was opened for reading, nor to a seed.
//! - When a write returns, every available copy has it; a missing device gets nothing, and neither
//!   does one that is left out (`left_out.rs`).
//! - A copy of tree blocks whose place refuses them, while another place of the same device takes
//!   them, counts as bad: its readers notice, since each address is written once in a generation.
//! - Nothing is durable before a flush that follows.
//! - A thread that copies content within a volume in use reads and writes it while no other thread
//!   writes ([`Volume::without_writes`]), if others may change it.

mod parity;
mod superblock;

use std::any::Any;
use std::io::IoSlice;
use std::sync::Arc;

use larder_device::{Device, DeviceError, Trouble};
use larder_format::superblock::OFFSETS;
use larder_format::{Logical, Physical, Profile, Superblock};

use crate::chunk::{Chunk, DeviceAddress};
use crate::geometry::Geometry;
use crate::problem::{CopyProblem, Unmapped};
use crate::volume::Volume;
use parity::write_rows;

/// Why a write failed. After an error any part of the range may have changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The volume was opened for reading.
    #[error("the volume is open for reading only")]
    ReadOnly,
    /// No chunk contains the range.
    #[error(transparent)]
    Unmapped(#[from] Unmapped),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A full stripe that is written in part cannot be completed with its old content.
    #[error("the rest of the full stripe at {row}: {problem}")]
    Incomplete {
        /// First address of the full stripe.
        row: Logical,
        /// Why one of its columns cannot be read.
        problem: CopyProblem,
    },
    /// Too many devices are missing, or a device is a seed's.
    #[error("the chunk at {chunk} cannot be written: too few of its devices are available")]
    NotWritable {
        /// Logical start of the chunk.
        chunk: Logical,
    },
}

impl Volume {
    /// Writes `bytes` to every copy of the range. The caller must not read or write any of the
    /// range at the same time.
    pub fn write(&self, logical: Logical, mut bytes: &[u8]) -> Result<(), WriteError> {
        self.check_writable()?;
        let _writing = self.writing.read();
        let geometry = self.geometry();
        geometry.for_each_chunk(logical, bytes.len() as u64, |chunk, at, part_bytes| {
            let part = bytes.split_off(..part_bytes as usize).expect("parts make up the range");
            geometry.check_chunk_writable(chunk)?;
            if chunk.has_parity() {
                write_rows(&geometry, chunk, at, part)?;
            } else {
                geometry.write_mirrors(chunk, at, part)?;
            }
            geometry.write_other_layout(chunk, at, part)
        })
    }

    fn check_writable(&self) -> Result<(), WriteError> {
        if self.is_writable() { Ok(()) } else { Err(WriteError::ReadOnly) }
    }

    /// Returns once every write that returned before this call is durable on every device.
    ///
    /// Flushes all devices even if one fails, and returns the first error.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.check_writable()?;
        let geometry = self.geometry();
        let devices = geometry.devices().iter();
        let results: Vec<_> = devices.map(|device| geometry.flush(device)).collect();
        results.into_iter().collect()
    }

    /// Commits: makes all writes durable, then writes the first copy of the superblock to every
    /// device that missed nothing, and makes it durable, then writes the others, which the next
    /// [`flush`](Self::flush) makes durable. Then `template` is [`Volume::superblock`].
    ///
    /// Each device gets `template` with its own device item, and each copy its own place and
    /// checksum.
    pub fn write_superblocks(&self, template: &Superblock) -> Result<(), WriteError> {
        let others =
            || OFFSETS[1..].iter().try_for_each(|offset| self.write_copies(*offset, template));
        let geometry = self.geometry();
        let failures = &geometry.common.failures;
        let happened;
        if self.flushes_in_one_step() {
            happened = failures.happened();
            others()?;
            self.lead_to(template)?;
        } else {
            self.flush()?;
            happened = failures.happened();
            self.lead_to(template)?;
            others()?;
        }
        *self.superblock.write() = Arc::new(template.clone());
        failures.note_commit(template.generation.get());
        failures.tell(happened);
        Ok(())
    }

    /// The first half of that: for a superblock that differs from the last commit's only in its
    /// log.
    pub fn write_first_copies(&self, template: &Superblock) -> Result<(), WriteError> {
        if !self.flushes_in_one_step() {
            self.flush()?;
        }
        self.lead_to(template)
    }

    /// The same for what is durable.
    fn lead_to(&self, template: &Superblock) -> Result<(), WriteError> {
        let (geometry, first) = (self.geometry(), self.devices_that_took_places());
        geometry.write_copies(&first, OFFSETS[0], template)?;
        first.iter().try_for_each(|device| geometry.flush(device))?;
        self.write_copies(OFFSETS[0], template)?;
        self.flush()
    }

    fn write_copies(&self, offset: Physical, template: &Superblock) -> Result<(), WriteError> {
        self.check_writable()?;
        let geometry = self.geometry();
        geometry.write_copies(geometry.devices(), offset, template)
    }

    /// Whether a superblock cannot be durable before what it leads to, and all copies are as new as
    /// the first. With several devices, what one leads to may be on others.
    fn flushes_in_one_step(&self) -> bool {
        matches!(&*self.devices(), [device] if device.flushes_in_one_step())
    }

    /// Why requests of a device wait at this time, if those of any do.
    pub fn trouble(&self) -> Option<Trouble> {
        self.devices().iter().find_map(|device| device.device()?.trouble())
    }

    /// What devices tell that only callers know who know their kind.
    pub fn particulars(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        let devices = self.devices();
        let devices = devices.iter().filter_map(|device| device.device());
        devices.filter_map(|device| device.particulars()).collect()
    }

    /// The devices with their newest states, if any of them has another state than this volume shows.
    /// They may be of different moments.
    pub fn newer_devices(&self) -> Result<Option<Vec<Arc<dyn Device>>>, DeviceError> {
        let (mut devices, mut is_newer) = (Vec::new(), false);
        for device in self.devices().iter().filter_map(|device| device.device().cloned()) {
            let newer = device.newer()?;
            is_newer |= newer.is_some();
            devices.push(newer.unwrap_or(device));
        }
        Ok(is_newer.then_some(devices))
    }

    /// Whether a device wants to learn what space commits free.
    pub fn wants_discards(&self) -> bool {
        self.devices().iter().any(|device| device.wants_discards())
    }

    /// Calls `act` while no thread [writes](Self::write): for a short time. It must not write so
    /// itself.
    pub fn without_writes<T>(&self, act: impl FnOnce() -> T) -> T {
        let _alone = self.writing.write();
        act()
    }

    /// Whether a device that missed commits has other content than `good`, which is the range as it
    /// was read from other devices.
    ///
    /// # Panics
    /// If the range lies in a chunk with parity.
    pub fn has_old_copy(&self, logical: Logical, good: &[u8]) -> Result<bool, WriteError> {
        let mut has_old = false;
        self.geometry().for_each_old_copy(logical, good, |_, _| {
            has_old = true;
            Ok::<_, WriteError>(())
        })?;
        Ok(has_old)
    }

    /// Writes a range to devices that missed commits, where their content differs. `good` is the
    /// range as it was read from other devices. Returns how many bytes were written.
    ///
    /// # Panics
    /// If the range lies in a chunk with parity.
    pub fn refresh(&self, logical: Logical, good: &[u8]) -> Result<u64, WriteError> {
        self.check_writable()?;
        let mut written_bytes = 0;
        let geometry = self.geometry();
        geometry.for_each_old_copy(logical, good, |address, part| {
            geometry.write_to(address, &[IoSlice::new(part)])?;
            written_bytes += part.len() as u64;
            Ok::<_, WriteError>(())
        })?;
        Ok(written_bytes)
    }

    /// Discards the range on every device that holds it: its content is undefined from now on. The
    /// caller must not read or write any of it at the same time.
    ///
    /// Ranges with parity are left unchanged: their neighbours are rebuilt from them. So is a chunk
    /// that moves.
    pub fn discard(&self, logical: Logical, len_bytes: u64) -> Result<(), WriteError> {
        self.check_writable()?;
        let geometry = self.geometry();
        geometry.for_each_chunk(logical, len_bytes, |chunk, at, part_bytes| {
            if chunk.has_parity() || geometry.is_moving(chunk) {
                return Ok(());
            }
            for segment in chunk.segments(at, part_bytes) {
                for address in chunk.addresses(&segment) {
                    if let Some(device) = geometry.device(address.devid) {
                        device.discard(address.physical, segment.len_bytes)?;
                    }
                }
            }
            Ok(())
        })
    }
}

impl Geometry {
    /// Visits the parts of a range on devices that missed commits whose content is not that of
    /// `good`.
    fn for_each_old_copy<E: From<Unmapped>>(
        &self,
        logical: Logical,
        mut good: &[u8],
        mut visit: impl FnMut(DeviceAddress, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut found = Vec::new();
        self.for_each_chunk(logical, good.len() as u64, |chunk, at, part_bytes| {
            assert!(!chunk.has_parity(), "what has parity is brought up to date by rows");
            for segment in chunk.segments(at, part_bytes) {
                let part = good.split_off(..segment.len_bytes as usize).expect("parts of it");
                let addresses = chunk.addresses(&segment);
                for address in addresses.filter(|address| self.is_outdated(chunk, address.devid)) {
                    found.resize(part.len(), 0);
                    if self.read_device(address, &mut found).is_ok() && found == part {
                        continue;
                    }
                    visit(address, part)?;
                }
            }
            Ok(())
        })
    }

    fn check_chunk_writable(&self, chunk: &Chunk) -> Result<(), WriteError> {
        let is_lost = |devid| self.device(devid).is_none_or(|device| device.written_to().is_none());
        if chunk.survives(|stripe| is_lost(stripe.devid)) {
            Ok(())
        } else {
            Err(WriteError::NotWritable { chunk: chunk.logical() })
        }
    }

    /// Writes to mirrors: each device's part is contiguous and is one write.
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
            let (mut is_taken, mut refused) = (false, None);
            for address in first.iter().flat_map(|segment| chunk.addresses(segment)) {
                match self.write_to(address, &parts) {
                    Ok(()) => is_taken = true,
                    Err(error) => refused = Some(error),
                }
            }
            let is_one_enough = chunk.profile() == Profile::Dup
                && chunk.holds_tree_blocks()
                && self.common.failures.are_tolerated();
            if let Some(error) = refused.filter(|_| !(is_taken && is_one_enough)) {
                return Err(error.into());
            }
        }
        Ok(())
    }
}
