//! Keeping to so many bytes in a second.

use std::time::{Duration, Instant};

/// What was not used of the limit in the last time, up to this, may be used later.
const BURST: Duration = Duration::from_millis(200);

/// When the next piece may begin.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// Accounts for a piece of `bytes` that begins at `now`, with a limit of so many bytes in a
    /// second. Returns how long to wait before the next piece.
    pub(crate) fn spend(&mut self, bytes: u64, limit: u64, now: Instant) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / limit as f64);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let next = self.next.map_or(now, |next| next.max(earliest)) + takes;
        self.next = Some(next);
        next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_to_the_limit_together() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.spend(500, 1000, now), Duration::from_millis(500));
        assert_eq!(pace.spend(500, 1000, now), Duration::from_secs(1));
        let later = now + Duration::from_secs(100);
        assert_eq!(pace.spend(500, 1000, later), Duration::from_millis(300));
    }
}
