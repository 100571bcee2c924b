//! A thread polls for the next request for a moment before it sleeps.
//!
//! While a thread sleeps its processor may halt, and waking two processors takes longer than
//! serving most requests. So a thread that has served a request looks for another, yields the
//! processor, and looks again. A program on the same processor makes its next request meanwhile and
//! sleeps until the reply: no thread has to be woken on another processor, and none halts.
//!
//! # Invariants
//! - A polling thread is as good as a sleeping one: it takes the next request that no other thread
//!   takes.
//! - A poll ends a [`MOMENT`] after it began, or later if another thread has the processor then.
//!   Such a poll was in vain, whatever it found: before the thread polls again, twice as many
//!   requests as the last time must each come within a moment while it sleeps. So no thread polls
//!   without requests, and hardly any polls if requests come slowly or the processor has other
//!   work.

use std::time::{Duration, Instant};

/// The longest poll: several threads take turns at requests that come one after another.
const MOMENT: Duration = Duration::from_micros(200);
/// The most requests that a thread sleeps for between two polls in vain.
const MOST_SLEEPS: u32 = 1024;

/// What a thread knows about the pace of its requests.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// When the thread began to wait.
    since: Instant,
    polls: bool,
    /// Requests that must come within a moment each before the thread polls again.
    sleeps: u32,
    /// The value of `sleeps` after the next poll in vain.
    next_sleeps: u32,
}

impl BusyPoll {
    /// The state of a thread that has had no request and sleeps for the first.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, polls: false, sleeps: 1, next_sleeps: 1 }
    }

    /// The thread begins to wait. Returns whether it polls before it sleeps.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        self.since = now;
        self.polls = self.sleeps == 0;
        self.polls
    }

    /// There is no request yet. Returns whether the thread goes on polling.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        if self.is_long(now) {
            self.was_in_vain();
        }
        self.polls
    }

    /// The thread has a request.
    pub(super) fn ends(&mut self, now: Instant) {
        match (self.polls, self.is_long(now)) {
            (true, true) => self.was_in_vain(),
            (true, false) => self.next_sleeps = 1,
            (false, true) => {}
            (false, false) => self.sleeps = self.sleeps.saturating_sub(1),
        }
    }

    fn is_long(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= MOMENT
    }

    fn was_in_vain(&mut self) {
        self.polls = false;
        self.sleeps = self.next_sleeps;
        self.next_sleeps = (self.next_sleeps * 2).min(MOST_SLEEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread and its clock.
    struct Thread {
        poll: BusyPoll,
        now: Instant,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::now();
            Self { poll: BusyPoll::new(now), now }
        }

        /// Waits for a request that comes after `gap`. Returns how often the thread looked for it
        /// if each look takes `look`.
        fn waits(&mut self, gap: Duration, look: Duration) -> usize {
            let comes = self.now + gap;
            let mut looks = 0;
            if self.poll.begins(self.now) {
                looks += 1;
                while self.now < comes && self.poll.goes_on(self.now) {
                    self.now += look;
                    looks += 1;
                }
            }
            self.now = self.now.max(comes);
            self.poll.ends(self.now);
            looks
        }
    }

    const FAST: Duration = Duration::from_micros(20);
    const SLOW: Duration = Duration::from_millis(2);
    const LOOK: Duration = Duration::from_micros(1);

    #[test]
    fn a_thread_with_frequent_requests_polls() {
        let mut thread = Thread::new();
        thread.waits(FAST, LOOK);
        assert!((0..1000).all(|_| thread.waits(FAST, LOOK) > 1));
    }

    #[test]
    fn a_poll_in_vain_ends_and_rare_requests_cause_none() {
        let mut thread = Thread::new();
        (0..10).for_each(|_| _ = thread.waits(FAST, LOOK));
        let looks = thread.waits(SLOW, LOOK);
        assert!(looks <= (MOMENT.as_nanos() / LOOK.as_nanos()) as usize + 1, "{looks}");
        assert!((0..1000).all(|_| thread.waits(SLOW, LOOK) == 0));
        // The pace is back.
        thread.waits(FAST, LOOK);
        assert!(thread.waits(FAST, LOOK) > 1);
    }

    /// Other threads keep the processor for long whenever this one yields it.
    #[test]
    fn polls_in_vain_get_rare() {
        let mut thread = Thread::new();
        let looks = (0..10_000).filter(|_| thread.waits(FAST, SLOW) > 0);
        let looks = looks.count();
        let most = 10_000 / MOST_SLEEPS as usize + MOST_SLEEPS.ilog2() as usize + 1;
        assert!((1..=most).contains(&looks), "{looks}");
    }
}
