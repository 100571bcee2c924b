//! How often an inode is open, and whether it has a name.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// The bit of an inode without a name; those below it count.
const UNLINKED: u64 = 1 << 63;

/// How often an inode is open, and whether it has a name.
#[derive(Debug, Default)]
pub(crate) struct Opens(AtomicU64);

impl Opens {
    /// Counts one more, unless there is no name. Returns whether it did.
    pub(crate) fn enter(&self) -> bool {
        let more = |word| (word & UNLINKED == 0).then_some(word + 1);
        self.0.fetch_update(AcqRel, Acquire, more).is_ok()
    }

    /// Counts one more open of an inode that the caller has open.
    pub(crate) fn enter_again(&self) {
        self.0.fetch_add(1, AcqRel);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Release);
    }

    /// Notes that the last name is gone, or that there is none yet. Returns how often the inode is
    /// open.
    pub(crate) fn unlink(&self) -> u64 {
        self.0.fetch_or(UNLINKED, AcqRel) & !UNLINKED
    }

    /// Notes that the inode, which the caller has open, was given a name.
    pub(crate) fn link(&self) {
        self.0.fetch_and(!UNLINKED, AcqRel);
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.0.load(Acquire) & UNLINKED != 0
    }

    /// Whether the inode has no name and is not open: it will never be seen again.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.load(Acquire) == UNLINKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_inodes_stay_open_and_are_not_opened_again() {
        let opens = Opens::default();
        assert!(opens.enter());
        assert!(!opens.is_abandoned(), "it has a name");
        assert_eq!(opens.unlink(), 1);
        assert!(opens.is_unlinked() && !opens.is_abandoned());
        assert!(!opens.enter(), "it has no name");
        opens.enter_again();
        opens.leave();
        assert!(!opens.is_abandoned(), "one is left");
        opens.link();
        assert!(opens.enter(), "it has a name again");
        opens.leave();
        assert_eq!(opens.unlink(), 1);
        opens.leave();
        assert!(opens.is_abandoned() && !opens.enter());
    }
}
