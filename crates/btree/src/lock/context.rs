//! What the locks of one forest share.

use std::time::Instant;

use super::waiting::Waiting;
use crate::stats::LockCounters;

/// What the locks of one forest share.
#[derive(Debug, Default)]
pub(crate) struct LockContext {
    pub(crate) waiting: Waiting,
    pub(crate) counters: LockCounters,
}

impl LockContext {
    /// Waits for a lock and counts the wait. `acquire` is how the lock itself waits.
    pub(super) fn wait<G>(
        &self,
        lock: usize,
        attempt: impl Fn() -> Option<G>,
        acquire: impl FnOnce() -> G,
    ) -> G {
        let since = Instant::now();
        let guard = self.waiting.wait(lock, attempt, acquire);
        self.counters.waited(since.elapsed());
        guard
    }
}
