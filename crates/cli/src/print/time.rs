//! Times as `seconds.nanoseconds (local date and time)`.

use std::cell::Cell;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use larder_format::item::Timespec;

use super::text::{Put, put};

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
    let text = local(seconds);
    if let Ok(text) = <[u8; LOCAL_LEN]>::try_from(text.as_bytes()) {
        LAST.set((seconds, text));
    }
    out.extend_from_slice(text.as_bytes());
}

fn local(seconds: i64) -> String {
    thread_local!(static ZONE: TimeZone = TimeZone::system());
    match Timestamp::from_second(seconds) {
        Ok(time) => {
            ZONE.with(|zone| time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string())
        }
        Err(_) => "out of range".into(),
    }
}
