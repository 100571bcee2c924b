//! A condition that threads wait for with a ranked mutex.

use std::time::Instant;

use crate::RankedMutexGuard;

/// A condition that threads wait for with a [`RankedMutex`](crate::RankedMutex). While a thread
/// waits, the mutex counts as held: it takes no other lock meanwhile.
#[derive(Debug, Default)]
pub struct RankedCondvar(parking_lot::Condvar);

impl RankedCondvar {
    /// Unlocks, waits until another thread notifies, and locks again.
    pub fn wait<T, const RANK: u8>(&self, guard: &mut RankedMutexGuard<'_, T, RANK>) {
        self.0.wait(&mut guard.value);
    }

    /// Likewise, until `end` at most.
    pub fn wait_until<T, const RANK: u8>(
        &self,
        guard: &mut RankedMutexGuard<'_, T, RANK>,
        end: Instant,
    ) {
        self.0.wait_until(&mut guard.value, end);
    }

    /// Waits as long as `condition` is true.
    pub fn wait_while<T, const RANK: u8>(
        &self,
        guard: &mut RankedMutexGuard<'_, T, RANK>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.0.wait_while(&mut guard.value, condition);
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
