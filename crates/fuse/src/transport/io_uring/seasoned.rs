//! The entries of a queue that take what waits in it.
//!
//! A request that comes while an entry waits is put into the entry. One that comes while none does waits in the
//! queue, until an entry brings a reply: that one takes it. An entry that is registered meanwhile takes nothing that
//! waits already. So an entry is *seasoned* once it has had a request, or since a time at which it was registered and
//! nothing waited in the queue.
//!
//! # Invariants
//! - Of the seasoned entries of a queue one at least waits for a request, or serves one without waiting for the kernel:
//!   what waits in the queue is served by that one, if by no other.
//! - An entry that is not counted as seasoned may be, and never the other way round.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use super::super::away::Place;

/// How many seasoned entries of a queue do not wait for the kernel.
#[derive(Debug, Default)]
pub(super) struct Seasoned(AtomicUsize);

/// What is left to do until an entry is counted as seasoned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Season {
    /// It is one of the first, so many, which are all registered. It is the one that finds nothing waiting in the queue
    /// and counts them all.
    Opens(usize),
    /// It came later, and counts itself.
    Joins,
    /// It does nothing.
    Opened,
}

impl Seasoned {
    /// The kernel has an entry. `is_waiting` tells whether the entry waits for a request, with nothing in the queue.
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

impl Place for Seasoned {
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
        // A later one counts once it has had a request.
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
