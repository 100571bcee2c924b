//! Devices that missed commits, and which of their content is out of date.
//!
//! # Invariants
//! - All content of a device from commits up to the generation in its superblock is right. So the
//!   superblock of a device that missed commits stays until the device has everything that it
//!   missed.
//! - A chunk that cannot be read without some devices was not written while these were missing:
//!   their content of it is right, however old their superblocks are.

use std::sync::atomic::Ordering::Acquire;

use crate::chunk::{Chunk, Segment};
use crate::geometry::Geometry;
use crate::member::VolumeDevice;

impl VolumeDevice {
    /// Whether the device missed commits: its superblock is older than the newest.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Acquire)
    }

    /// The commit up to which its content is known to be right; `None` if it is missing.
    fn right_until(&self) -> Option<u64> {
        self.device()?;
        Some(if self.is_stale() { self.generation().unwrap_or_default() } else { u64::MAX })
    }
}

impl Geometry {
    /// Whether a device's content of a chunk may be out of date: the newer devices of the chunk did
    /// or could write it without this one.
    pub(crate) fn is_outdated(&self, chunk: &Chunk, devid: u64) -> bool {
        let Some(device) = self.device(devid).filter(|device| device.is_stale()) else {
            return false;
        };
        let right_until =
            |devid| self.device(devid).and_then(|device| device.right_until()).unwrap_or_default();
        let own = device.right_until().unwrap_or_default();
        // Whether the devices that saw a later commit wrote it without this one.
        let could_be_without = |commit| chunk.survives(|s| right_until(s.devid) < commit);
        let mut commits = chunk.stripes().iter().map(|stripe| right_until(stripe.devid));
        commits.any(|commit| commit > own && could_be_without(commit))
    }

    /// Whether a copy of a segment lies on a device where it is out of date.
    pub(crate) fn is_copy_outdated(&self, chunk: &Chunk, segment: &Segment, copy: usize) -> bool {
        copy < chunk.mirrors() && self.is_outdated(chunk, chunk.address(segment, copy).devid)
    }
}
