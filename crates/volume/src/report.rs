//! Reports of copies that are no good and devices that fail.
//!
//! # Invariants
//! - A device that fails all the time is reported now and then: [`MOST_REPORTS`] in [`PERIOD`]. The
//!   next report says how many were left out; counters have them all.

use std::time::{Duration, Instant};

use larder_device::DeviceError;
use parking_lot::Mutex;

use crate::member::VolumeDevice;
use crate::read::{FailedCopy, ReadError};
use crate::volume::Volume;

/// In this time there are as many reports as [`MOST_REPORTS`] at most.
const PERIOD: Duration = Duration::from_secs(5);
const MOST_REPORTS: u32 = 10;

/// Holds back reports that come too fast.
#[derive(Debug, Default)]
pub(crate) struct ReportLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    period_began: Option<Instant>,
    reports: u32,
    left_out: u64,
}

/// What became of a bad copy of which there is a good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was overwritten with good content.
    Healed,
    /// That failed.
    NotHealed,
    /// It was left as it is.
    Left,
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

    /// Calls `report` unless there were too many reports. It is given words for those that were
    /// left out.
    fn report(&self, report: impl FnOnce(&str)) {
        match self.admit(Instant::now()) {
            None => {}
            Some(0) => report(""),
            Some(left_out) => report(&format!(" ({left_out} reports before this were left out)")),
        }
    }
}

impl Volume {
    /// Reports a bad copy of what was read from another.
    pub(crate) fn report_bad_copy(&self, failure: &FailedCopy, fate: Fate) {
        let FailedCopy { logical, len_bytes, place, .. } = failure;
        let fate = match fate {
            Fate::Healed => "healed from a good copy",
            Fate::NotHealed => "it could not be overwritten; a good copy was read",
            Fate::Left => "left as it is; a good copy was read",
        };
        let device = place.and_then(|place| self.device(place.devid));
        device.map_or(&self.reports, |device| &device.reports).report(|left_out| {
            tracing::warn!(
                "a bad copy of {len_bytes} bytes at logical address {logical}: {failure}: \
                 {fate}{left_out}"
            );
        });
    }

    /// Reports that something cannot be read.
    pub(crate) fn report_lost(&self, error: &ReadError) {
        self.reports.report(|left_out| tracing::error!("no good copy: {error}{left_out}"));
    }
}

impl VolumeDevice {
    /// Reports that the device failed to do something.
    pub(crate) fn report_failure(&self, error: &DeviceError) {
        let devid = self.devid();
        self.reports.report(|left_out| tracing::error!("device {devid}: {error}{left_out}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_too_fast_is_counted_and_told_later() {
        let (limit, now) = (ReportLimit::default(), Instant::now());
        let admitted = (0..MOST_REPORTS + 3).filter(|_| limit.admit(now) == Some(0)).count();
        assert_eq!(admitted, MOST_REPORTS as usize);
        assert_eq!(limit.admit(now + PERIOD / 2), None);
        assert_eq!(limit.admit(now + PERIOD), Some(4));
        assert_eq!(limit.admit(now + PERIOD), Some(0));
    }
}
