//! The atomics that the index is built on, and how a writer waits.
//!
//! Under the `shuttle` feature every atomic is a point where the scheduler may switch threads, so
//! that the code that is explored is the code that ships.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    thread,
};

/// Waiting for another writer: the thread spins briefly, since the writer needs only a few hundred
/// instructions, and then gives its processor away, since the writer may not be running.
pub(crate) struct Wait {
    rounds: u32,
}

impl Wait {
    const SPIN_ROUNDS: u32 = 6;

    pub(crate) fn new() -> Self {
        Wait { rounds: 0 }
    }

    /// True before the first [`Wait::pause`].
    pub(crate) fn is_fresh(&self) -> bool {
        self.rounds == 0
    }

    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn pause(&mut self) {
        if self.rounds < Self::SPIN_ROUNDS {
            for _ in 0..1 << self.rounds {
                std::hint::spin_loop();
            }
            self.rounds += 1;
        } else {
            thread::yield_now();
        }
    }

    #[cfg(feature = "shuttle")]
    pub(crate) fn pause(&mut self) {
        self.rounds = Self::SPIN_ROUNDS;
        thread::yield_now();
    }
}
