//! Writing superblocks.

use std::io::IoSlice;

use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Physical, Superblock};
use zerocopy::IntoBytes;

use super::WriteError;
use crate::member::VolumeDevice;
use crate::volume::Volume;

impl Volume {
    /// Commits: makes all writes durable, then writes the superblock to every device, the first
    /// copies before the others, and makes them durable.
    ///
    /// Each device gets `template` with its own device item, and each copy its own place and
    /// checksum.
    pub fn write_superblocks(&self, template: &Superblock) -> Result<(), WriteError> {
        self.flush()?;
        for offset in OFFSETS {
            self.write_copies(offset, template)?;
        }
        self.flush()
    }
}

impl Volume {
    /// Makes all writes durable, then writes the first copy of the superblock only to every device, and
    /// makes it durable: for a superblock that differs from the last commit's in nothing but its log.
    pub fn write_log_superblock(&self, template: &Superblock) -> Result<(), WriteError> {
        self.flush()?;
        self.write_copies(OFFSETS[0], template)?;
        self.flush()
    }

    fn write_copies(&self, offset: Physical, template: &Superblock) -> Result<(), WriteError> {
        for device in self.devices.iter().filter(|device| reaches(device, offset)) {
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
