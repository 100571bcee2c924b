//! The sums of all block groups of a kind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_locks::RankedMutex;
use larder_locks::rank::MAY_USE;

use super::withdrawn::Withdrawn;

/// The space of a kind, and its uses. All numbers are bytes of logical address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In all block groups.
    pub total: u64,
    /// In extents of the extent tree.
    pub used: u64,
    /// Allocated, and not in the extent tree yet.
    pub reserved: u64,
    /// Not in the extent tree any more, but in the last durable state or in one that a reader keeps.
    pub pinned: u64,
    /// Unusable: superblock copies, groups that cannot be written, and what is free in those that
    /// leave.
    pub unusable: u64,
    /// Held by reservations, and spoken for by delayed references.
    pub may_use: u64,
    /// Wanted for work that must not fail: bookkeeping and deleting. There may be less left.
    pub global_reserve: u64,
    /// Space that new chunks could add.
    pub unallocated: u64,
}

impl Usage {
    /// Space that cannot be reserved.
    pub fn spoken_for(&self) -> u64 {
        self.taken() + self.may_use
    }

    /// Space that is not free.
    pub fn taken(&self) -> u64 {
        self.used + self.reserved + self.pinned + self.unusable
    }
}

/// The counters of [`Usage`].
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) total: Count,
    pub(super) used: Count,
    pub(super) reserved: Count,
    pub(super) pinned: Count,
    pub(super) unusable: Count,
    pub(super) global_reserve: Count,
    pub(super) unallocated: Count,
    pub(super) withdrawn: Withdrawn,
    /// Locked while a thread decides about a reservation, so that no two get the same space.
    pub(super) may_use: RankedMutex<u64, MAY_USE>,
}

impl Account {
    pub(super) fn usage(&self) -> Usage {
        self.usage_with(*self.may_use.lock())
    }

    pub(super) fn usage_with(&self, may_use: u64) -> Usage {
        Usage {
            total: self.total.get(),
            used: self.used.get(),
            reserved: self.reserved.get(),
            pinned: self.pinned.get(),
            unusable: self.unusable.get() + self.withdrawn.free_bytes(),
            may_use,
            global_reserve: self.global_reserve.get(),
            unallocated: self.unallocated.get(),
        }
    }
}

/// A number of bytes that threads change without ordering anything else.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Relaxed);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Relaxed);
    }

    pub(super) fn sub(&self, bytes: u64) {
        let before = self.0.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes go of {before}");
    }

    /// Subtracts, down to 0.
    pub(super) fn sub_at_most(&self, bytes: u64) {
        let less = |before: u64| Some(before.saturating_sub(bytes));
        self.0.fetch_update(Relaxed, Relaxed, less).expect("it always changes");
    }
}
