//! Writing superblocks.
//!
//! # Invariants
//! - A superblock is written after all that it leads to is durable.
//! - A first copy is durable before any other copy says the same: what was lost of a commit is lost for whoever
//!   believes the newest copy, as we do, and for whoever believes the first, as the kernel does.
//! - A device that missed commits keeps the superblock that says so.

use std::io::IoSlice;

use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Physical, Superblock};
use zerocopy::IntoBytes;

use super::WriteError;
use crate::member::VolumeDevice;
use crate::volume::Volume;

impl Volume {
    /// Commits: makes all writes durable, then writes the first copy of the superblock to every device that
    /// missed nothing, and makes it durable, then writes the others, which the next [`flush`](Self::flush) makes durable.
    ///
    /// Each device gets `template` with its own device item, and each copy its own place and
    /// checksum.
    pub fn write_superblocks(&self, template: &Superblock) -> Result<(), WriteError> {
        self.write_first_copies(template)?;
        OFFSETS[1..].iter().try_for_each(|offset| self.write_copies(*offset, template))
    }

    /// The first half of that: for a superblock that differs from the last commit's in nothing but its log.
    pub fn write_first_copies(&self, template: &Superblock) -> Result<(), WriteError> {
        self.flush()?;
        self.write_copies(OFFSETS[0], template)?;
        self.flush()
    }

    fn write_copies(&self, offset: Physical, template: &Superblock) -> Result<(), WriteError> {
        let is_written = |device: &&VolumeDevice| reaches(device, offset) && !device.is_stale();
        for device in self.devices.iter().filter(is_written) {
            let superblock = superblock_for(device, offset, template);
            device.write(&[IoSlice::new(superblock.as_bytes())], offset)?;
        }
        Ok(())
    }
}

/// A copy needs a byte after it: so the kernel has it.
fn reaches(device: &VolumeDevice, offset: Physical) -> bool {
    offset.0 + (SUPERBLOCK_SIZE as u64) < device.dev_item.total_bytes.get()
}

fn superblock_for(
    device: &VolumeDevice,
    offset: Physical,
    template: &Superblock,
) -> Box<Superblock> {
    let mut superblock = Box::new(template.clone());
    superblock.dev_item = device.current_dev_item();
    superblock.bytenr = offset.0.into();
    superblock.update_checksum();
    superblock
}
