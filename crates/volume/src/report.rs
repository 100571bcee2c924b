//! Reports of bad copies and failing devices.
//!
//! # Invariants
//! - If a device fails all the time, there are at most [`MOST_REPORTS`] in [`PERIOD`]. The next
//!   report says how many were left out; counters have them all.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The period for [`MOST_REPORTS`].
const PERIOD: Duration = Duration::from_secs(5);
const MOST_REPORTS: u32 = 10;

/// Limits the rate of reports.
#[derive(Debug, Default)]
pub(crate) struct ReportLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    period_began: Option<Instant>,
    reports: u32,
    left_out: u64,
}

impl ReportLimit {
    /// Whether there may be a report now, and how many were left out since the last.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.period_began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD) {
            (state.period_began, state.reports) = (Some(now), 0);
        }
        if state.reports == MOST_REPORTS {
            state.left_out += 1;
            return None;
        }
        state.reports += 1;
        Some(std::mem::take(&mut state.left_out))
    }

    /// Calls `report` unless there were too many reports, with words for the reports that were left
    /// out.
    pub(crate) fn report(&self, report: impl FnOnce(&str)) {
        match self.admit(Instant::now()) {
            None => {}
            Some(0) => report(""),
            Some(left_out) => report(&format!(" ({left_out} reports before this were left out)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_in_a_burst_are_counted_and_reported_later() {
        let (limit, now) = (ReportLimit::default(), Instant::now());
        let admitted = (0..MOST_REPORTS + 3).filter(|_| limit.admit(now) == Some(0)).count();
        assert_eq!(admitted, MOST_REPORTS as usize);
        assert_eq!(limit.admit(now + PERIOD / 2), None);
        assert_eq!(limit.admit(now + PERIOD), Some(4));
        assert_eq!(limit.admit(now + PERIOD), Some(0));
    }
}
