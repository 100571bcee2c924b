//! Looking for the next request for a moment before sleeping until it comes.
//!
//! Where a thread sleeps its processor may halt, and waking two of them takes longer than serving most requests.
//! So whoever has served one looks whether there is another, lets others run on this processor, and looks again.
//! A program that runs there makes its next request meanwhile and sleeps until the reply: nobody has to be
//! woken on another processor, and none halts.
//!
//! # Invariants
//! - Who looks is as good as who sleeps: it takes the next request that nobody else takes.
//! - A look ends a [`MOMENT`] after it began, or once whoever else got the processor leaves it. One that took as long was
//!   in vain, whatever it found: then twice as many requests as the last time have to come to this thread within
//!   a moment, in its sleep, before it looks again. So nobody looks where nobody asks, and hardly ever where requests
//!   come slowly or the processor has other work.

use std::time::{Duration, Instant};

/// How long a look takes at most: several threads take turns at requests that come one after another.
const MOMENT: Duration = Duration::from_micros(200);
/// The most requests that are slept for between two looks in vain.
const MOST_SLEEPS: u32 = 1024;

/// What a thread knows about the pace of its requests.
#[derive(Debug)]
pub(super) struct Lookout {
    /// When it began to wait.
    since: Instant,
    looks: bool,
    /// Requests that have to come within a moment before it looks again.
    sleeps: u32,
    /// As many, should the next look be in vain.
    next_sleeps: u32,
}

impl Lookout {
    /// That of a thread that has had no request, and sleeps for the first.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, looks: false, sleeps: 1, next_sleeps: 1 }
    }

    /// The thread begins to wait. Returns whether it looks before it sleeps.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        self.since = now;
        self.looks = self.sleeps == 0;
        self.looks
    }

    /// There was no request until now. Returns whether to look on.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        if self.is_long(now) {
            self.was_in_vain();
        }
        self.looks
    }

    /// The thread has a request.
    pub(super) fn ends(&mut self, now: Instant) {
        match (self.looks, self.is_long(now)) {
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
        self.looks = false;
        self.sleeps = self.next_sleeps;
        self.next_sleeps = (self.next_sleeps * 2).min(MOST_SLEEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread, and the time that it has.
    struct Thread {
        lookout: Lookout,
        now: Instant,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::now();
            Self { lookout: Lookout::new(now), now }
        }

        /// Waits for a request that comes after `gap`. Returns how often the thread looked for it, if a
        /// look takes `look`.
        fn waits(&mut self, gap: Duration, look: Duration) -> usize {
            let comes = self.now + gap;
            let mut looks = 0;
            if self.lookout.begins(self.now) {
                looks += 1;
                while self.now < comes && self.lookout.goes_on(self.now) {
                    self.now += look;
                    looks += 1;
                }
            }
            self.now = self.now.max(comes);
            self.lookout.ends(self.now);
            looks
        }
    }

    const FAST: Duration = Duration::from_micros(20);
    const SLOW: Duration = Duration::from_millis(2);
    const LOOK: Duration = Duration::from_micros(1);

    #[test]
    fn who_is_asked_at_a_pace_looks_for_the_next() {
        let mut thread = Thread::new();
        thread.waits(FAST, LOOK);
        assert!((0..1000).all(|_| thread.waits(FAST, LOOK) > 1));
    }

    #[test]
    fn a_look_in_vain_ends_and_nobody_looks_who_is_asked_slowly() {
        let mut thread = Thread::new();
        (0..10).for_each(|_| _ = thread.waits(FAST, LOOK));
        let looks = thread.waits(SLOW, LOOK);
        assert!(looks <= (MOMENT.as_nanos() / LOOK.as_nanos()) as usize + 1, "{looks}");
        assert!((0..1000).all(|_| thread.waits(SLOW, LOOK) == 0));
        // The pace is back.
        thread.waits(FAST, LOOK);
        assert!(thread.waits(FAST, LOOK) > 1);
    }

    /// Others have the processor for long whenever it is left to them.
    #[test]
    fn who_looks_in_vain_again_and_again_hardly_does() {
        let mut thread = Thread::new();
        let looks = (0..10_000).filter(|_| thread.waits(FAST, SLOW) > 0);
        let looks = looks.count();
        let most = 10_000 / MOST_SLEEPS as usize + MOST_SLEEPS.ilog2() as usize + 1;
        assert!((1..=most).contains(&looks), "{looks}");
    }
}
