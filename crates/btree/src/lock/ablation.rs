//! Other ways to wait for a lock, for benchmarks that compare them.

use std::hash::BuildHasher;
use std::hint::spin_loop;
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex};

use super::recorder::{self, Right};
use crate::cache::SpreadAddresses;

/// How a thread waits for the lock of a tree block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It spins for a moment, since threads hold locks for moments, and then sleeps.
    #[default]
    Adaptive,
    /// It spins until it has the lock.
    Spinning,
    /// It sleeps at once.
    Sleeping,
}

impl Waiting {
    /// Waits for a lock. `acquire` is how the lock itself waits.
    pub(super) fn wait<G>(
        self,
        lock: usize,
        attempt: impl Fn() -> Option<G>,
        acquire: impl FnOnce() -> G,
    ) -> G {
        match self {
            Self::Adaptive => acquire(),
            Self::Spinning => loop {
                if let Some(guard) = attempt() {
                    break guard;
                }
                spin_loop();
            },
            Self::Sleeping => wait_queue(lock).sleep_until(attempt),
        }
    }

    /// The thread may read. The guard drops what this returns after it has released the lock.
    pub(super) fn reads(self, lock: usize) -> Wakeup {
        self.taken(lock, Right::Read)
    }

    /// The thread may change what no other thread sees. Its guard does the same.
    pub(super) fn writes(self, lock: usize) -> Wakeup {
        self.taken(lock, Right::Write)
    }

    fn taken(self, lock: usize, right: Right) -> Wakeup {
        recorder::taken(lock, right);
        Wakeup { lock, is_waited_for: self == Self::Sleeping }
    }
}

/// Wakes the threads that sleep for a lock. A guard declares it after the lock's own guard, so that
/// it is dropped when the lock is free.
pub(super) struct Wakeup {
    lock: usize,
    is_waited_for: bool,
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        recorder::released(self.lock);
        if self.is_waited_for {
            wait_queue(self.lock).wake();
        }
    }
}

/// Where threads sleep that wait for a lock. Locks whose addresses hash alike share one.
#[derive(Default)]
struct WaitQueue {
    asleep: Mutex<()>,
    woken: Condvar,
}

impl WaitQueue {
    fn sleep_until<G>(&self, attempt: impl Fn() -> Option<G>) -> G {
        let mut asleep = self.asleep.lock();
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            self.woken.wait(&mut asleep);
        }
    }

    fn wake(&self) {
        // A thread whose attempt has just failed is asleep by the time this one has the mutex.
        drop(self.asleep.lock());
        self.woken.notify_all();
    }
}

fn wait_queue(lock: usize) -> &'static WaitQueue {
    static QUEUES: LazyLock<(SpreadAddresses, [WaitQueue; 64])> =
        LazyLock::new(|| (SpreadAddresses::new(), std::array::from_fn(|_| WaitQueue::default())));
    let (spread, queues) = &*QUEUES;
    &queues[spread.hash_one(lock as u64) as usize % queues.len()]
}
