//! Times: of states, and of what a user asks for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::timer::Timer;

/// The clock of a store. States get their times from it, since the clocks of writers differ and may
/// be wrong. Between two looks at it, the time since this machine started tells how it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    timer: Timer,
    seen: u64,
    seen_at: Duration,
}

impl Clock {
    /// The clock of a store that gave an object the time `modified` just now.
    pub(crate) fn of_store(modified: u64, timer: Timer) -> Self {
        Self { seen: modified, seen_at: timer.now(), timer }
    }

    /// The time of what follows what has the time `last`. That is in the future if the clock was
    /// wrong before, or is wrong now: this machine's clock tells which.
    pub(crate) fn now_after(&self, last: u64) -> u64 {
        let now = self.now();
        if now < last && self::now() >= last { last } else { now }
    }

    /// Seconds since 1970 there.
    pub(crate) fn now(&self) -> u64 {
        self.seen + self.timer.elapsed(self.seen_at).as_secs()
    }
}

/// Seconds since 1970 by this machine's clock.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The seconds since 1970 of a day, or of a time on it, in the time zone of the system:
/// `2026-11-24`, with `T16:00` or `T16:00:05`.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let time: DateTime = text.parse().ok()?;
    let time = time.to_zoned(TimeZone::system()).ok()?;
    time.timestamp().as_second().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_wrong_is_told_from_one_that_is() {
        let this_machine = now();
        // It is right again, and was ten years ahead.
        let right = Clock::of_store(this_machine, Timer::default());
        let ahead = this_machine + 10 * 365 * 24 * 3600;
        assert!(right.now_after(ahead) < ahead);
        // It is behind.
        let behind = Clock::of_store(1_000, Timer::default());
        assert_eq!(behind.now_after(this_machine - 100), this_machine - 100);
        assert!(right.now_after(this_machine - 100) >= this_machine);
    }
}
