//! The time of states.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Seconds since 1970.
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
