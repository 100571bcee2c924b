//! Writing superblocks.
//!
//! # Invariants
//! - A superblock is written after everything that it leads to is durable.
//! - A first copy is durable before any other copy is written: if part of a commit is lost, it is
//!   lost for a reader that uses the newest copy, as this one does, and for one that uses the
//!   first, as the kernel does.
//! - A device that missed commits keeps the superblock that says so.
//! - A first copy that is not written is a failure of its device. Another copy is one to fall back
//!   on: that it is old is counted, and is no failure.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Physical, Superblock};
use zerocopy::IntoBytes;

use super::WriteError;
use crate::geometry::Geometry;
use crate::member::VolumeDevice;

impl Geometry {
    /// Writes the copies at `offset` to those of the devices that missed nothing, each with its own
    /// device item, place and checksum.
    pub(super) fn write_copies(
        &self,
        devices: &[Arc<VolumeDevice>],
        offset: Physical,
        template: &Superblock,
    ) -> Result<(), WriteError> {
        let is_written =
            |device: &&Arc<VolumeDevice>| reaches(device, offset) && !device.is_stale();
        for device in devices.iter().filter(is_written) {
            let superblock = superblock_for(device, offset, template);
            let written = device.write_only_here(&[IoSlice::new(superblock.as_bytes())], offset);
            if let Err(error) = written
                && (offset == OFFSETS[0] || !self.common.failures.are_tolerated())
            {
                self.do_without(device, error)?;
            }
        }
        for twin in devices.iter().filter_map(|device| Some((device.twin()?, device.dev_item()))) {
            let (twin, item) = twin;
            twin.follow(&item);
            let superblock = superblock_for(&twin.member, offset, template);
            if reaches(&twin.member, offset) {
                twin.write(&[IoSlice::new(superblock.as_bytes())], offset);
            }
        }
        Ok(())
    }
}

impl VolumeDevice {
    /// Writes the superblock of the last commit to a device before the commit that adds it. So no
    /// power cut leaves a file system that counts the device, while the device says nothing.
    pub fn introduce(&self, template: &Superblock) -> Result<(), WriteError> {
        for offset in OFFSETS {
            if reaches(self, offset) {
                let superblock = superblock_for(self, offset, template);
                self.write_only_here(&[IoSlice::new(superblock.as_bytes())], offset)?;
            }
        }
        Ok(self.flush()?)
    }

    /// Overwrites all superblocks of a device that was removed, so that no program takes it for one
    /// of the file system. Does nothing if it is missing. That is tried too if it refused writes.
    pub fn forget_superblocks(&self) -> Result<(), WriteError> {
        self.is_left_out.store(false, Release);
        for offset in OFFSETS {
            if reaches(self, offset) {
                self.write_only_here(&[IoSlice::new(&[0; SUPERBLOCK_SIZE])], offset)?;
            }
        }
        Ok(self.flush()?)
    }
}

/// A copy needs a byte after it, as in the kernel.
fn reaches(device: &VolumeDevice, offset: Physical) -> bool {
    offset.0 + (SUPERBLOCK_SIZE as u64) < device.dev_item().total_bytes.get()
}

fn superblock_for(
    device: &VolumeDevice,
    offset: Physical,
    template: &Superblock,
) -> Box<Superblock> {
    let mut superblock = Box::new(template.clone());
    superblock.dev_item = device.dev_item();
    superblock.bytenr = offset.0.into();
    superblock.update_checksum();
    superblock
}
