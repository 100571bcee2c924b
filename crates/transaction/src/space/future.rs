//! Chunks that could be made: the one simulation of what devices still have space for.
//!
//! # Invariants
//! - A future is a copy of the devices. Chunks are made in it as reservations would make them, with
//!   the profile that new chunks have.
//! - It promises no more than the devices have: places of superblock copies do not count.

use larder_format::Logical;
use larder_volume::layout::{DeviceSpace, Devices, Limits};

use super::{Space, SpaceKind};

/// If many more chunks than these would fit, several are simulated as one, so that the number of
/// simulated chunks grows with the logarithm of the space.
const SINGLE_CHUNKS: u64 = 16;
/// The most chunks that are simulated, if holes of odd sizes are left.
const MAX_CHUNKS: usize = 1024;

/// The devices with some chunks more.
#[derive(Clone)]
pub(super) struct Future<'s> {
    space: &'s Space,
    devices: Devices,
    /// Where chunks go in the address space.
    logical: Logical,
}

impl Space {
    /// The future that begins with these devices.
    pub(super) fn future(&self, devices: Devices) -> Future<'_> {
        Future { space: self, devices, logical: self.next_logical() }
    }
}

impl Future<'_> {
    pub(super) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Makes a chunk. Returns how many bytes of it can be used; `None` if there is no space.
    pub(super) fn add(&mut self, kind: SpaceKind) -> Option<u64> {
        self.add_as_one(kind, 1)
    }

    /// Makes a chunk, or several of them as one if many more fit.
    pub(super) fn add_some(&mut self, kind: SpaceKind) -> Option<u64> {
        let chunk_bytes = self.space.limits(kind, &self.devices).chunk_bytes;
        let raw_bytes = chunk_bytes.saturating_mul(self.space.profile(kind).copies());
        let unallocated: u64 = self.devices.usable().map(DeviceSpace::unallocated_bytes).sum();
        let chunks = unallocated / raw_bytes.max(1);
        self.add_as_one(kind, (chunks / SINGLE_CHUNKS).max(1))
    }

    /// Makes chunks until there is no space. Returns how many bytes of them can be used.
    pub(super) fn add_all(&mut self, kind: SpaceKind) -> u64 {
        (0..MAX_CHUNKS).map_while(|_| self.add_some(kind)).sum()
    }

    fn add_as_one(&mut self, kind: SpaceKind, chunks: u64) -> Option<u64> {
        let limits = self.space.limits(kind, &self.devices);
        let limits = Limits {
            chunk_bytes: limits.chunk_bytes.saturating_mul(chunks),
            stripe_bytes: limits.stripe_bytes.saturating_mul(chunks),
            ..limits
        };
        let plan = limits.plan(self.space.profile(kind), &self.devices)?;
        let chunk = plan.chunk(self.logical, kind.flag()).ok()?;
        self.devices.take(&chunk);
        let unusable = chunk.superblock_ranges().into_iter().map(|(_, len_bytes)| len_bytes);
        Some(chunk.len_bytes() - unusable.sum::<u64>())
    }
}
