//! A lock for readers and writers, with a rank.

use std::ops::{Deref, DerefMut};

use crate::Held;

/// A lock for many readers or one writer, with the rank `RANK`.
#[derive(Debug, Default)]
pub struct RankedRwLock<T, const RANK: u8>(parking_lot::RwLock<T>);

/// A [`RankedRwLock`] that is locked for reading.
#[derive(Debug)]
#[must_use]
pub struct RankedReadGuard<'a, T, const RANK: u8> {
    // Dropped before the note that it is held.
    value: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// A [`RankedRwLock`] that is locked for writing.
#[derive(Debug)]
#[must_use]
pub struct RankedWriteGuard<'a, T, const RANK: u8> {
    // Dropped before the note that it is held.
    value: parking_lot::RwLockWriteGuard<'a, T>,
    held: Option<Held>,
}

impl<T, const RANK: u8> RankedRwLock<T, RANK> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Waits until it may read.
    #[track_caller]
    pub fn read(&self) -> RankedReadGuard<'_, T, RANK> {
        let held = Held::wait_for(RANK);
        RankedReadGuard { value: self.0.read(), _held: held }
    }

    /// The right to read, if no thread writes.
    #[track_caller]
    pub fn try_read(&self) -> Option<RankedReadGuard<'_, T, RANK>> {
        let value = self.0.try_read()?;
        Some(RankedReadGuard { value, _held: Held::tried(RANK) })
    }

    /// Waits until it may write.
    #[track_caller]
    pub fn write(&self) -> RankedWriteGuard<'_, T, RANK> {
        let held = Held::wait_for(RANK);
        RankedWriteGuard { value: self.0.write(), held: Some(held) }
    }
}

impl<T, const RANK: u8> RankedWriteGuard<'_, T, RANK> {
    /// Unlocks while it runs `act`, and waits for the lock again.
    #[track_caller]
    pub fn unlocked<R>(&mut self, act: impl FnOnce() -> R) -> R {
        self.held = None;
        let mut held = None;
        let outcome = parking_lot::RwLockWriteGuard::unlocked(&mut self.value, || {
            let outcome = act();
            held = Some(Held::wait_for(RANK));
            outcome
        });
        self.held = held;
        outcome
    }
}

impl<T, const RANK: u8> Deref for RankedReadGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const RANK: u8> Deref for RankedWriteGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const RANK: u8> DerefMut for RankedWriteGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
