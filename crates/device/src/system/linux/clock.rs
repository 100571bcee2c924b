//! The clock for the times of files.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since 1970, and nanoseconds from there, by the clock that Linux itself uses for the
/// times of files, which moves with each tick. The kernel sets some times of a mounted file, and
/// Larder sets others; with one clock, a later event never has an earlier time.
pub fn now() -> (i64, u32) {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    (time.tv_sec, time.tv_nsec as u32)
}
