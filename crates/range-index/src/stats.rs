//! Sums and counters, striped so that writers in different places do not meet here either, unless
//! the index is to take little memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Stripes of an index with many writers.
pub(crate) const MANY: usize = 16;

/// One stripe, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    entries: AtomicI64,
    covered: AtomicI64,
    lost_exchanges: AtomicU64,
    blocked: AtomicU64,
    structural: AtomicU64,
    held_ns: AtomicU64,
}

/// How often the writers of an index had to wait, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Edits that were planned again because another writer changed the same block first.
    pub lost_exchanges: u64,
    /// How often a writer found a lock taken and waited.
    pub blocked: u64,
    /// Splits and moves between neighbours: the only operations that hold a lock.
    pub structural: u64,
    /// Time for which those held locks, in nanoseconds.
    pub held_ns: u64,
}

pub(crate) struct Counters {
    stripes: Box<[Stripe]>,
}

fn stripe_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % MANY);
        }
        stripe.get()
    })
}

impl Counters {
    /// Counters in so many stripes, at most [`MANY`].
    pub(crate) fn new(stripes: usize) -> Self {
        Self { stripes: (0..stripes).map(|_| Stripe::default()).collect() }
    }

    fn mine(&self) -> &Stripe {
        &self.stripes[stripe_of_this_thread() % self.stripes.len()]
    }

    pub(crate) fn add(&self, entries: i64, covered: i64) {
        let stripe = self.mine();
        if entries != 0 {
            stripe.entries.fetch_add(entries, Ordering::Relaxed);
        }
        if covered != 0 {
            stripe.covered.fetch_add(covered, Ordering::Relaxed);
        }
    }

    pub(crate) fn lost_exchange(&self) {
        self.mine().lost_exchanges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn blocked(&self) {
        self.mine().blocked.fetch_add(1, Ordering::Relaxed);
    }

    /// Sums may be momentarily off by the edits in progress, never below zero.
    fn sum(&self, field: impl Fn(&Stripe) -> &AtomicI64) -> u64 {
        let load = |stripe| field(stripe).load(Ordering::Relaxed);
        self.stripes.iter().map(load).fold(0i64, i64::wrapping_add) as u64
    }

    pub(crate) fn entries(&self) -> u64 {
        self.sum(|stripe| &stripe.entries)
    }

    pub(crate) fn covered(&self) -> u64 {
        self.sum(|stripe| &stripe.covered)
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let sum = |field: fn(&Stripe) -> &AtomicU64| {
            self.stripes.iter().map(|stripe| field(stripe).load(Ordering::Relaxed)).sum()
        };
        Stats {
            lost_exchanges: sum(|stripe| &stripe.lost_exchanges),
            blocked: sum(|stripe| &stripe.blocked),
            structural: sum(|stripe| &stripe.structural),
            held_ns: sum(|stripe| &stripe.held_ns),
        }
    }
}

/// Measures for how long a structural operation holds its locks.
pub(crate) struct Held<'a> {
    counters: &'a Counters,
    since: Instant,
}

impl<'a> Held<'a> {
    pub(crate) fn new(counters: &'a Counters) -> Self {
        Held { counters, since: Instant::now() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let stripe = self.counters.mine();
        stripe.structural.fetch_add(1, Ordering::Relaxed);
        stripe.held_ns.fetch_add(self.since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}
