//! How far a send has come.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many parts are the whole.
const WHOLE: u32 = 1 << 20;

/// How far a send has come, for whoever looks from another thread. It is a guess from how many inodes are
/// left: bytes are not known before they are sent.
#[derive(Debug, Default)]
pub struct SendProgress {
    parts: AtomicU32,
}

impl SendProgress {
    /// What part was sent, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(self.parts.load(Relaxed)) / f64::from(WHOLE)
    }

    /// Says what part was sent, from 0 to 1.
    pub fn set_fraction(&self, fraction: f64) {
        let parts = fraction.clamp(0.0, 1.0) * f64::from(WHOLE);
        self.parts.store(parts as u32, Relaxed);
    }
}

/// The inodes of a send, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Those that were sent, or numbers that were passed.
    pub(super) done: u64,
    pub(super) total: u64,
}

impl Counted {
    /// What part was sent once `part` of `whole` bytes of the next inode is.
    pub(super) fn fraction(self, part: u64, whole: u64) -> f64 {
        let within = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        if self.total == 0 { 0.0 } else { (self.done as f64 + within) / self.total as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_second_of_four_is_three_eighths() {
        let counted = Counted { done: 1, total: 4 };
        assert_eq!(counted.fraction(50, 100), 0.375);
        assert_eq!(counted.fraction(0, 0), 0.25);
        assert_eq!(Counted::default().fraction(1, 2), 0.0);
        let progress = SendProgress::default();
        progress.set_fraction(0.375);
        assert_eq!(progress.fraction(), 0.375);
        progress.set_fraction(f64::NAN);
        assert_eq!(progress.fraction(), 0.0);
        progress.set_fraction(7.0);
        assert_eq!(progress.fraction(), 1.0);
    }
}
