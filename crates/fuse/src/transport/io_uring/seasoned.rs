//! The entries of a queue that take the requests which wait in it.
//!
//! A request that comes while an entry waits is put into the entry. Otherwise it waits in the queue
//! until an entry brings a reply: that entry takes it. An entry that is registered meanwhile does
//! not take a waiting request. So an entry is *seasoned* once it has had a request, or once it was
//! registered at a time when no request waited in the queue.
//!
//! # Invariants
//! - At least one of the seasoned entries of a queue waits for a request, or serves one without
//!   waiting for the kernel: that one serves the requests in the queue, if no other does.
//! - An entry that is not counted as seasoned may be seasoned, never the other way round.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use super::super::away::Slot;

/// How many seasoned entries of a queue do not wait for the kernel.
#[derive(Debug, Default)]
pub(super) struct Seasoned(AtomicUsize);

/// What is left to do until an entry is counted as seasoned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Season {
    /// It is one of the first entries, all of which are registered. It is the one that finds no
    /// request in the queue and counts them all.
    Opens(usize),
    /// It came later, and counts itself.
    Joins,
    /// It does nothing.
    Opened,
}

impl Seasoned {
    /// The kernel has an entry. `is_waiting` tells whether the entry waits for a request, with none
    /// in the queue.
    pub(super) fn given(&self, season: &mut Season, is_waiting: impl FnOnce() -> bool) {
        if let Season::Opens(first) = *season
            && is_waiting()
        {
            self.0.fetch_add(first, SeqCst);
            *season = Season::Opened;
        }
    }

    /// An entry has a request.
    pub(super) fn taken(&self, season: &mut Season) {
        if *season == Season::Joins {
            self.0.fetch_add(1, SeqCst);
            *season = Season::Opened;
        }
    }

    /// An entry is not served any more.
    pub(super) fn ends(&self) {
        let _ = self.0.fetch_update(SeqCst, SeqCst, |here| here.checked_sub(1));
    }
}

impl Slot for Seasoned {
    fn leave(&self) -> bool {
        let others_stay = |here: usize| (here > 1).then(|| here - 1);
        self.0.fetch_update(SeqCst, SeqCst, others_stay).is_ok()
    }

    fn come_back(&self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_stays() {
        let seasoned = Seasoned::default();
        let mut season = Season::Opens(2);
        seasoned.given(&mut season, || false);
        assert!(!seasoned.leave(), "something may wait that no other takes");
        seasoned.given(&mut season, || true);
        assert!(seasoned.leave());
        assert!(!seasoned.leave());
        // An entry that came later counts once it has had a request.
        let mut season = Season::Joins;
        seasoned.given(&mut season, || true);
        assert!(!seasoned.leave());
        (0..2).for_each(|_| seasoned.taken(&mut season));
        assert!(seasoned.leave());
        assert!(!seasoned.leave());
        seasoned.come_back();
        assert!(seasoned.leave());
    }
}
