//! How many times devices of a volume failed, and which of that the superblocks tell
//! (`left_out.rs`).

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, MutexGuard};

/// What a volume knows of failures of its devices.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// The generation of the last commit.
    last_commit: AtomicU64,
    /// How many times a device was left out.
    happened: AtomicU64,
    /// How many of these came before a commit whose superblocks the device did not get.
    told: AtomicU64,
    /// Each failure is the caller's error.
    is_none_tolerated: AtomicBool,
    /// Held by a thread that changes whether a device is left out or has missed commits.
    deciding: Mutex<()>,
}

impl Failures {
    /// Failures so far. A commit takes the number before it writes its first superblock.
    pub(crate) fn happened(&self) -> u64 {
        self.happened.load(Acquire)
    }

    /// Makes each failure the caller's error, as in a file system that is being made.
    pub(crate) fn tolerate_none(&self) {
        self.is_none_tolerated.store(true, Release);
    }

    pub(crate) fn are_tolerated(&self) -> bool {
        !self.is_none_tolerated.load(Acquire)
    }

    /// A device was left out.
    pub(crate) fn happen(&self) {
        self.happened.fetch_add(1, Release);
    }

    /// Whether a device was left out, and no commit since tells the next opening so.
    pub(crate) fn has_untold(&self) -> bool {
        self.told.load(Acquire) < self.happened()
    }

    /// Keeps others from changing whether a device is left out or has missed commits.
    pub(crate) fn decide(&self) -> MutexGuard<'_, ()> {
        self.deciding.lock()
    }

    /// The generation of the last commit.
    pub(crate) fn last_commit(&self) -> u64 {
        self.last_commit.load(Acquire)
    }

    pub(crate) fn note_commit(&self, generation: u64) {
        self.last_commit.store(generation, Release);
    }

    /// The superblocks of a commit are durable that began after so many failures.
    pub(crate) fn tell(&self, happened: u64) {
        self.told.fetch_max(happened, Release);
    }
}
