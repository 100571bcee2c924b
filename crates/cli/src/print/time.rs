//! Times as `seconds.nanoseconds (local date and time)`.

use std::cell::Cell;

use jiff::Timestamp;
use larder_format::item::Timespec;

use super::text::{Put, put};
use crate::time_zone::SHOWN;

thread_local! {
    /// The last second that was converted, and its text: neighbours in a tree share times.
    static LAST: Cell<(i64, [u8; LOCAL_LEN])> = const { Cell::new((i64::MIN, [0; LOCAL_LEN])) };
}

/// Length of `2026-11-20 09:21:37`.
const LOCAL_LEN: usize = 19;

impl Put for Timespec {
    fn put(&self, out: &mut Vec<u8>) {
        let seconds = self.seconds();
        put!(out, seconds as u64, ".", self.nsec.get(), " (");
        put_local(seconds, out);
        out.push(b')');
    }
}

/// Appends a time in the local time zone.
fn put_local(seconds: i64, out: &mut Vec<u8>) {
    let (last, text) = LAST.get();
    if last == seconds {
        return out.extend_from_slice(&text);
    }
    let text = local_time(seconds);
    if let Ok(text) = <[u8; LOCAL_LEN]>::try_from(text.as_bytes()) {
        LAST.set((seconds, text));
    }
    out.extend_from_slice(text.as_bytes());
}

/// Seconds in 400 years of the Gregorian calendar, after which days and weekdays repeat.
const CYCLE_SECONDS: i64 = 146_097 * 24 * 60 * 60;
/// Seconds from 1970 to the year 9000: beyond it years are shifted back by whole cycles.
const YEAR_9000: i64 = 221_845_392_000;

/// `2026-11-20 09:21:37 +0000` in the local time zone.
pub fn local_time_with_zone(seconds: i64) -> String {
    format_local(seconds, "%m-%d %H:%M:%S %z")
}

/// `2026-11-20 09:21:37.000000001 +0000` in the local time zone.
pub fn precise_local_time(seconds: i64, nanoseconds: u32) -> String {
    format_local(seconds, &format!("%m-%d %H:%M:%S.{nanoseconds:09} %z"))
}

/// `2026-11-20T09:21:37+0000` in the local time zone, as in a dump of a stream.
pub fn stream_time(seconds: i64) -> String {
    format_local(seconds, "%m-%dT%H:%M:%S%z")
}

/// `2026-11-20 09:21:37` in the local time zone.
pub fn local_time(seconds: i64) -> String {
    format_local(seconds, "%m-%d %H:%M:%S")
}

/// The year, a dash, and the result of `after_year`.
fn format_local(seconds: i64, after_year: &str) -> String {
    let (cycles, within) = if (-YEAR_9000..YEAR_9000).contains(&seconds) {
        (0, seconds)
    } else {
        (seconds.div_euclid(CYCLE_SECONDS), seconds.rem_euclid(CYCLE_SECONDS))
    };
    let time = Timestamp::from_second(within).expect("between the years -5000 and 9000");
    let local = time.to_zoned(SHOWN.clone());
    let year = i64::from(local.year()) + cycles * 400;
    format!("{year}-{}", local.strftime(after_year))
}

/// `Fri Nov 20 09:21:37 2026` in the local time zone.
pub fn calendar_time(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds.clamp(-YEAR_9000, YEAR_9000)).unwrap_or_default();
    time.to_zoned(SHOWN.clone()).strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// `2026-11-20 09:21:37` in the local time zone; the number itself beyond the year 9999.
pub fn unsigned_local_time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| Timestamp::from_second(s).ok());
    time.map_or_else(
        || seconds.to_string(),
        |time| time.to_zoned(SHOWN.clone()).strftime("%F %T").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_second_have_a_text() {
        assert!(local_time(i64::MIN).starts_with("-292277022657-01-"));
        assert!(local_time(i64::MAX).starts_with("292277026596-12-"));
    }
}
