//! Threads that take requests from one source.
//!
//! # Invariants
//! - As long as there may be more threads, one always waits for requests: a thread that takes a
//!   request when no other waits is told to start another first.
//! - A thread that is away, waiting for the kernel, is not counted: the kernel may need requests
//!   served before the thread comes back. So there may be as many more threads as are away. One of
//!   the others waits for requests, or will, once it has served one that waits only for devices.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// How many threads there are, and how many of them wait.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    threads: AtomicUsize,
    waiting: AtomicUsize,
    away: AtomicUsize,
}

impl Pool {
    /// A pool that may have `most` threads and has none.
    pub(super) fn new(most: usize) -> Self {
        let [threads, waiting, away] = Default::default();
        Self { most, threads, waiting, away }
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

    /// Whether any thread has begun and not ended.
    pub(super) fn has_threads(&self) -> bool {
        self.threads.load(SeqCst) > 0
    }

    /// A waiting thread has a request. Returns whether it has to start another thread first.
    pub(super) fn takes(&self) -> bool {
        let nobody_waits = self.waiting.fetch_sub(1, SeqCst) == 1;
        nobody_waits && self.has_room()
    }

    /// A thread that serves a request is about to wait for the kernel. Returns whether it has to
    /// start another thread first.
    pub(super) fn goes_away(&self) -> bool {
        self.away.fetch_add(1, SeqCst);
        self.waiting.load(SeqCst) == 0 && self.has_room()
    }

    /// A thread that was away goes on with its request.
    pub(super) fn comes_back(&self) {
        self.away.fetch_sub(1, SeqCst);
    }

    fn has_room(&self) -> bool {
        self.threads.load(SeqCst) < self.most + self.away.load(SeqCst)
    }

    /// A thread has served its request. Returns whether it waits for the next: if `most` wait
    /// already, it leaves the pool.
    pub(super) fn waits(&self, most: usize) -> bool {
        // In one step: otherwise two threads could leave because of each other, and none would
        // wait.
        let one_more = |waiting| (waiting < most).then_some(waiting + 1);
        let waits = self.waiting.fetch_update(SeqCst, SeqCst, one_more).is_ok();
        if !waits {
            self.threads.fetch_sub(1, SeqCst);
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_leaves_does_not_count_as_waiting() {
        let pool = Pool::new(8);
        assert!(!pool.has_threads());
        (0..3).for_each(|_| pool.begins());
        assert!(pool.has_threads());
        assert!(!pool.takes() && !pool.takes());
        assert!(pool.waits(2));
        // Two wait: this one leaves, and is not counted as waiting.
        assert!(!pool.waits(2));
        assert!(!pool.takes());
        assert!(pool.takes(), "nobody waits");
        pool.begins();
        assert!(pool.waits(2));
        assert!(!pool.waits(2));
    }

    #[test]
    fn a_thread_that_is_away_is_replaced() {
        let pool = Pool::new(2);
        (0..2).for_each(|_| pool.begins());
        assert!(!pool.takes());
        assert!(!pool.goes_away(), "another waits");
        assert!(pool.takes(), "nobody waits but for the kernel");
        pool.begins();
        assert!(!pool.takes());
        assert!(pool.goes_away());
        pool.begins();
        (0..2).for_each(|_| pool.comes_back());
        assert!(!pool.takes(), "there are more than may be");
    }
}
