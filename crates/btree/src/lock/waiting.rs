//! How a thread waits for a lock.

/// How a thread waits: it spins for a moment, since threads hold locks for moments, and then
/// sleeps. That is what the lock itself does. The feature `ablation` puts a type of the same name
/// in place of this one, with a choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting;

#[expect(clippy::unused_self, reason = "the type that a benchmark sets has a choice")]
impl Waiting {
    /// Waits for a lock. `acquire` is how the lock itself waits.
    pub(super) fn wait<G>(
        self,
        _lock: usize,
        _attempt: impl Fn() -> Option<G>,
        acquire: impl FnOnce() -> G,
    ) -> G {
        acquire()
    }

    /// The thread may read. The guard drops what this returns after it has released the lock.
    pub(super) fn reads(self, _lock: usize) -> Wakeup {
        Wakeup
    }

    /// The thread may change what no other thread sees. Its guard does the same.
    pub(super) fn writes(self, _lock: usize) -> Wakeup {
        Wakeup
    }
}

/// Nothing: the lock itself wakes threads.
pub(super) struct Wakeup;
