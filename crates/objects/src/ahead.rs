//! Reading ahead of threads that read one range after the other.
//!
//! A request takes tens of milliseconds, however little it asks for. So a stream of reads needs
//! many requests on their way at once, as far ahead as it takes to keep the line busy.

use std::ops::Range;

use parking_lot::Mutex;

/// Streams that are followed at a time. A new one takes the place of the one that was read last
/// the longest ago.
const STREAMS: usize = 8;

/// How far from its expected place a read may begin and still belong to a stream, in bytes, or in
/// reads of its length if that is more: threads of a mount overtake one another.
const SLACK_BYTES: u64 = 1 << 20;

const SLACK_READS: u64 = 16;

/// A stream is read ahead after so many bytes, of which threads have read [most](PROOF_FOURTHS):
/// those that look up here and there in a small tree do not follow it.
const PROOF_BYTES: u64 = 1 << 20;

const PROOF_FOURTHS: u64 = 2;

/// The first distance. It doubles with each step, as far as the stream itself is that long.
const FIRST_DISTANCE_BYTES: u64 = 4 << 20;

/// The longest distance: what all fetching threads have on their way, and a few segments more that
/// are there.
const DISTANCE_BYTES: u64 = 96 << 20;

/// Once the distance is long, a step asks for at least so much.
const STEP_BYTES: u64 = 8 << 20;

/// A stream of which none of so many reads was a part has ended.
const REMEMBERED_READS: u64 = 256;

/// Streams of reads of a device.
#[derive(Debug)]
pub(crate) struct Ahead {
    most_bytes: u64,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    clock: u64,
    all: [Stream; STREAMS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    used: u64,
    start: u64,
    /// The end of what was read.
    end: u64,
    /// How much was read.
    read_bytes: u64,
    /// The end of what was asked for.
    asked: u64,
    distance: u64,
}

impl Ahead {
    /// All streams together are up to `most_bytes` ahead.
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, streams: Mutex::default() }
    }

    /// What to fetch, now that a thread reads `read`.
    pub(crate) fn of(&self, read: Range<u64>) -> Option<Range<u64>> {
        let mut streams = self.streams.lock();
        streams.clock += 1;
        let now = streams.clock;
        let lasting = streams.all.iter().filter(|stream| stream.lasts(now)).count() as u64;
        let most_distance = (self.most_bytes / lasting.max(1)).min(DISTANCE_BYTES);
        let Some(stream) = streams.all.iter_mut().find(|stream| stream.goes_on_with(&read)) else {
            let oldest = streams.all.iter_mut().min_by_key(|stream| stream.used);
            *oldest.expect("there are some") = Stream {
                used: now,
                start: read.start,
                end: read.end,
                read_bytes: read.end - read.start,
                asked: read.end,
                distance: FIRST_DISTANCE_BYTES,
            };
            return None;
        };
        stream.used = now;
        stream.end = stream.end.max(read.end);
        stream.read_bytes += read.end - read.start;
        stream.asked = stream.asked.max(stream.end);
        let length = stream.end - stream.start;
        let distance = stream.distance.min(most_distance).min(length.max(FIRST_DISTANCE_BYTES));
        let step = STEP_BYTES.min(distance / 2);
        if !stream.is_proven() || stream.asked + step > stream.end + distance {
            return None;
        }
        let next = stream.asked..stream.end + distance;
        stream.asked = next.end;
        stream.distance = (2 * stream.distance).min(DISTANCE_BYTES);
        (!next.is_empty()).then_some(next)
    }
}

impl Stream {
    fn goes_on_with(&self, read: &Range<u64>) -> bool {
        let slack = SLACK_BYTES.max(SLACK_READS * (read.end - read.start));
        self.used > 0 && read.start + slack >= self.end && read.start <= self.end + slack
    }

    fn is_proven(&self) -> bool {
        let length = self.end.saturating_sub(self.start);
        length >= PROOF_BYTES && 4 * self.read_bytes >= PROOF_FOURTHS * length
    }

    fn lasts(&self, now: u64) -> bool {
        self.is_proven() && self.used + REMEMBERED_READS > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_is_read_ahead_without_gaps_and_without_asking_twice() {
        let ahead = Ahead::new(256 << 20);
        let mut asked = 0;
        for at in (0..200 * MIB).step_by(128 << 10) {
            if let Some(next) = ahead.of(at..at + 128 * KIB) {
                assert!(asked == 0 || next.start == asked, "{next:?} after {asked}");
                assert!(next.start >= at + 128 * KIB && !next.is_empty());
                asked = next.end;
            }
            assert!(asked <= at + 128 * KIB + DISTANCE_BYTES);
        }
        assert!(asked >= 200 * MIB + DISTANCE_BYTES / 2);
    }

    #[test]
    fn streams_do_not_disturb_one_another() {
        let ahead = Ahead::new(256 << 20);
        let mut asked = [0; 4];
        for at in (0..8 * MIB).step_by(128 << 10) {
            for (stream, asked) in asked.iter_mut().enumerate() {
                let start = stream as u64 * 1000 * MIB + at;
                if ahead.of(start..start + 128 * KIB).is_some() {
                    *asked += 1;
                }
            }
        }
        assert!(asked.iter().all(|count| (1..=6).contains(count)), "{asked:?}");
    }

    #[test]
    fn streams_share_the_memory() {
        let ahead = Ahead::new(32 * MIB);
        for at in (0..200 * MIB).step_by(128 << 10) {
            for stream in 0..4 {
                let start = stream * 1000 * MIB + at;
                if let Some(next) = ahead.of(start..start + 128 * KIB) {
                    assert!(at < 4 * MIB || next.end <= start + 128 * KIB + 8 * MIB, "{next:?}");
                }
            }
        }
    }

    #[test]
    fn threads_that_overtake_one_another_read_one_stream() {
        let ahead = Ahead::new(256 << 20);
        let asked: Vec<_> = (0..64)
            .filter_map(|index: u64| {
                let start = (index ^ 7) * MIB;
                ahead.of(start..start + MIB)
            })
            .collect();
        assert!(asked.windows(2).all(|pair| pair[0].end <= pair[1].start), "{asked:?}");
        assert!(asked.last().unwrap().end > 80 * MIB, "{asked:?}");
    }

    #[test]
    fn lookups_in_a_small_tree_are_no_stream() {
        let ahead = Ahead::new(256 << 20);
        for at in 0..100 {
            let start = at * 61 % 100 * 20 * KIB;
            assert_eq!(ahead.of(start..start + 8 * KIB), None);
        }
    }

    #[test]
    fn no_more_is_asked_ahead_than_was_read() {
        let ahead = Ahead::new(256 << 20);
        for at in (0..40 * MIB).step_by(128 << 10) {
            if let Some(next) = ahead.of(at..at + 128 * KIB) {
                assert!(next.end <= at + 128 * KIB + (at + 128 * KIB).max(4 * MIB), "{next:?}");
            }
        }
    }

    #[test]
    fn reads_here_and_there_are_no_stream() {
        let ahead = Ahead::new(256 << 20);
        for at in 0..1000 {
            let start = at * 7_919 % 1000 * 10 * MIB;
            assert_eq!(ahead.of(start..start + 16 * KIB), None);
        }
    }
}
