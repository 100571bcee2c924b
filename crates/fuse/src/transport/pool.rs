//! Threads that take requests from one place.
//!
//! # Invariants
//! - As long as there may be more threads, one waits for requests whatever the others do: who takes a
//!   request when nobody else waits is told to start another thread first.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// How many threads there are, and how many of them wait.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    threads: AtomicUsize,
    waiting: AtomicUsize,
}

impl Pool {
    /// A pool that may have `most` threads and has none.
    pub(super) fn new(most: usize) -> Self {
        Self { most, threads: AtomicUsize::new(0), waiting: AtomicUsize::new(0) }
    }

    /// A thread begins, and waits.
    pub(super) fn begins(&self) {
        self.threads.fetch_add(1, SeqCst);
        self.waiting.fetch_add(1, SeqCst);
    }

    /// A thread that waited ends.
    pub(super) fn ends(&self) {
        self.waiting.fetch_sub(1, SeqCst);
        self.threads.fetch_sub(1, SeqCst);
    }

    /// A thread that waited has a request. Returns whether it has to start another thread first.
    pub(super) fn takes(&self) -> bool {
        let nobody_waits = self.waiting.fetch_sub(1, SeqCst) == 1;
        nobody_waits && self.threads.load(SeqCst) < self.most
    }

    /// A thread is done with its request and waits. Returns how many waited already.
    pub(super) fn waits(&self) -> usize {
        self.waiting.fetch_add(1, SeqCst)
    }
}
