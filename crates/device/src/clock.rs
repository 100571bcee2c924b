//! The time of what happens to files.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since 1970, and nanoseconds from there: by the clock that Linux itself takes the times
/// of files from, which moves with each tick. The kernel sets some times of a file that is mounted,
/// and Larder sets others; with one clock, what happens later never has the earlier time.
pub fn now() -> (i64, u32) {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    (time.tv_sec, time.tv_nsec as u32)
}
