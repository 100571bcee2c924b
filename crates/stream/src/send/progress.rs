//! The progress of a send.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const MILLION: u32 = 1_000_000;

/// The progress of a send, for other threads. It is an estimate from the number of remaining
/// inodes: the number of bytes is not known in advance.
#[derive(Debug, Default)]
pub struct SendProgress {
    millionths: AtomicU32,
}

impl SendProgress {
    /// The progress in millionths.
    pub fn millionths(&self) -> u32 {
        self.millionths.load(Relaxed)
    }

    /// Raises the progress to this many millionths; never lowers it.
    pub fn set_millionths(&self, millionths: u32) {
        self.millionths.fetch_max(millionths.min(MILLION), Relaxed);
    }
}

/// The inodes of a send, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Inodes that were sent, or numbers that were passed.
    pub done: u64,
    /// All inodes to send, or all numbers.
    pub total: u64,
}

impl Counted {
    /// The progress in millionths after `part` of `whole` bytes of the next inode.
    pub fn millionths(self, part: u64, whole: u64) -> u32 {
        let of = |part: u128, whole: u64| part.checked_div(whole.into()).unwrap_or(0);
        let within = of(u128::from(part) * u128::from(MILLION), whole);
        let done = u128::from(self.done) * u128::from(MILLION) + within;
        of(done, self.total).min(MILLION.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_parts_of_an_inode() {
        let counted = Counted { done: 1, total: 4 };
        assert_eq!(counted.millionths(50, 100), 375_000);
        assert_eq!(counted.millionths(0, 0), 250_000);
        assert_eq!(Counted { done: u64::MAX, total: 1 }.millionths(u64::MAX, 1), MILLION);
        assert_eq!(Counted::default().millionths(1, 2), 0);
        let progress = SendProgress::default();
        progress.set_millionths(u32::MAX);
        progress.set_millionths(1);
        assert_eq!(progress.millionths(), MILLION);
    }
}
