//! Threads that take requests from one place.
//!
//! # Invariants
//! - As long as there may be more threads, one waits for requests whatever the others do: who takes a
//!   request when nobody else waits is told to start another thread first.
//! - A thread that is away, waiting for the kernel, is not counted: the kernel may have to be served before it
//!   comes back. So there may be as many more threads as are away, and one of the others waits for requests or will,
//!   once it has served one for which it waits for nobody but devices.

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

    /// Whether any thread began that has not ended.
    pub(super) fn has_threads(&self) -> bool {
        self.threads.load(SeqCst) > 0
    }

    /// A thread that waited has a request. Returns whether it has to start another thread first.
    pub(super) fn takes(&self) -> bool {
        let nobody_waits = self.waiting.fetch_sub(1, SeqCst) == 1;
        nobody_waits && self.has_room()
    }

    /// A thread that serves a request is to wait for the kernel. Returns whether it has to start another thread
    /// first.
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

    /// A thread is done with its request. Returns whether it waits for the next: if `most` wait already, it
    /// is no thread of the pool any more.
    pub(super) fn waits(&self, most: usize) -> bool {
        // In one step: were those counted that go, the last could go for them.
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
    fn who_goes_is_not_waited_for() {
        let pool = Pool::new(8);
        assert!(!pool.has_threads());
        (0..3).for_each(|_| pool.begins());
        assert!(pool.has_threads());
        assert!(!pool.takes() && !pool.takes());
        assert!(pool.waits(2));
        // Two wait: this one goes, and nobody takes it for one who waits.
        assert!(!pool.waits(2));
        assert!(!pool.takes());
        assert!(pool.takes(), "nobody waits");
        pool.begins();
        assert!(pool.waits(2));
        assert!(!pool.waits(2));
    }

    #[test]
    fn who_is_away_is_replaced() {
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
