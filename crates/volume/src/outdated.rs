//! Devices that missed commits, and what of them is out of date.
//!
//! # Invariants
//! - All that a device holds of the commits up to the generation in its superblock is right. So the
//!   superblock of a device that missed commits stays as it is until the device has all that it
//!   missed.
//! - A chunk that cannot be read without some devices was not written while these were missing:
//!   what they hold of it is right, however old their superblocks are.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::chunk::{Chunk, Segment};
use crate::member::VolumeDevice;
use crate::members::Members;

impl VolumeDevice {
    /// Whether the device missed commits: its superblock is older than the newest.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Acquire)
    }

    /// Counts the device as any other. It has all that it missed.
    pub(crate) fn end_staleness(&self) {
        self.is_stale.store(false, Release);
    }

    /// Up to which commit what it holds is known to be right; `None` if it is missing.
    fn right_until(&self) -> Option<u64> {
        self.device()?;
        Some(if self.is_stale() { self.generation().unwrap_or_default() } else { u64::MAX })
    }
}

impl Members {
    /// Whether what a device holds of a chunk may be out of date: the chunk was or could have been
    /// written without it, by the devices of it that are newer.
    pub(crate) fn is_outdated(&self, chunk: &Chunk, devid: u64) -> bool {
        let Some(device) = self.device(devid).filter(|device| device.is_stale()) else {
            return false;
        };
        let right_until =
            |devid| self.device(devid).and_then(VolumeDevice::right_until).unwrap_or_default();
        let own = device.right_until().unwrap_or_default();
        // Whether it was written without this one by those that saw a later commit.
        let could_be_without = |commit| chunk.survives(|s| right_until(s.devid) < commit);
        let mut commits = chunk.stripes().iter().map(|stripe| right_until(stripe.devid));
        commits.any(|commit| commit > own && could_be_without(commit))
    }

    /// Whether a copy of a segment lies on a device where it is out of date.
    pub(crate) fn is_copy_outdated(&self, chunk: &Chunk, segment: &Segment, copy: usize) -> bool {
        copy < chunk.mirrors() && self.is_outdated(chunk, chunk.place(segment, copy).devid)
    }
}
