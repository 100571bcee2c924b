//! How a thread waits for a lock: what the lock ablation switches.

use std::hash::BuildHasher;
use std::hint::spin_loop;
use std::sync::LazyLock;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::cache::SpreadAddresses;
use crate::stats::LockCounters;

/// How a thread waits for the lock of a tree block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It spins for a moment, since locks are held for moments, and then sleeps.
    #[default]
    Adaptive,
    /// It spins until it has the lock.
    Spinning,
    /// It sleeps at once.
    Sleeping,
}

/// What the locks of one forest share.
#[derive(Debug, Default)]
pub(crate) struct LockContext {
    pub(crate) waiting: Waiting,
    pub(crate) counters: LockCounters,
}

impl LockContext {
    /// Waits as the policy says. `acquire` is how the lock itself waits.
    pub(super) fn wait<G>(
        &self,
        lock: usize,
        attempt: impl Fn() -> Option<G>,
        acquire: impl FnOnce() -> G,
    ) -> G {
        let since = Instant::now();
        let guard = match self.waiting {
            Waiting::Adaptive => acquire(),
            Waiting::Spinning => loop {
                if let Some(guard) = attempt() {
                    break guard;
                }
                spin_loop();
            },
            Waiting::Sleeping => bed(lock).sleep_until(attempt),
        };
        self.counters.waited(since.elapsed());
        guard
    }

    /// What wakes those who sleep for `lock`, when it is dropped behind the lock's guard.
    pub(super) fn alarm(&self, lock: usize) -> Alarm {
        Alarm { lock: (self.waiting == Waiting::Sleeping).then_some(lock) }
    }
}

/// Wakes those who sleep for a lock. Declared behind the guard that it belongs to, it is dropped
/// after the lock is free.
pub(super) struct Alarm {
    lock: Option<usize>,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            bed(lock).wake();
        }
    }
}

/// Where threads sleep that wait for locks whose addresses meet here.
#[derive(Default)]
struct Bed {
    asleep: Mutex<()>,
    alarm: Condvar,
}

impl Bed {
    fn sleep_until<G>(&self, attempt: impl Fn() -> Option<G>) -> G {
        let mut asleep = self.asleep.lock();
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            self.alarm.wait(&mut asleep);
        }
    }

    fn wake(&self) {
        // Whoever has just failed to get the lock is asleep by the time this has the mutex.
        drop(self.asleep.lock());
        self.alarm.notify_all();
    }
}

fn bed(lock: usize) -> &'static Bed {
    static BEDS: LazyLock<(SpreadAddresses, [Bed; 64])> =
        LazyLock::new(|| (SpreadAddresses::new(), std::array::from_fn(|_| Bed::default())));
    let (spread, beds) = &*BEDS;
    &beds[spread.hash_one(lock as u64) as usize % beds.len()]
}
