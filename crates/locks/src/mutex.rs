//! A mutex with a rank.

use std::ops::{Deref, DerefMut};

use crate::Held;

/// A mutex with the rank `RANK`.
#[derive(Debug, Default)]
pub struct RankedMutex<T, const RANK: u8>(parking_lot::Mutex<T>);

/// A locked [`RankedMutex`].
#[derive(Debug)]
#[must_use]
pub struct RankedMutexGuard<'a, T, const RANK: u8> {
    // Dropped before the note that it is held.
    pub(crate) value: parking_lot::MutexGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u8> RankedMutex<T, RANK> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    #[track_caller]
    pub fn lock(&self) -> RankedMutexGuard<'_, T, RANK> {
        let held = Held::wait_for(RANK);
        RankedMutexGuard { value: self.0.lock(), _held: held }
    }

    /// The lock, if no thread has it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T, RANK>> {
        let value = self.0.try_lock()?;
        Some(RankedMutexGuard { value, _held: Held::tried(RANK) })
    }

    /// Whether a thread has the lock.
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl<T, const RANK: u8> Deref for RankedMutexGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const RANK: u8> DerefMut for RankedMutexGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
