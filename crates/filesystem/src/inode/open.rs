//! Open inodes: the handles that keep what is written to an inode.
//!
//! # Invariants
//! - A caller of the library has an inode through an [`OpenInode`] and in no other way. The sets of
//!   dirty and delayed inodes, and the threads that write them back, only refer to the [`LiveInode`].
//! - The number of [`OpenInode`]s and whether the inode has a name are one word. An inode that has
//!   no name and is not open stays so: nobody can open it, and nobody can give it a name. Only then
//!   may its data be thrown away.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::inode::live::LiveInode;

/// The bit of an inode without a name; those below it count.
const UNLINKED: u64 = 1 << 63;

/// A handle of an inode: as long as there is one of these, what is written to the inode is kept,
/// whether it has a name or not.
#[derive(Debug)]
pub(crate) struct OpenInode {
    live: Arc<LiveInode>,
}

impl OpenInode {
    /// Opens an inode, unless it has no name.
    pub(crate) fn open(live: Arc<LiveInode>) -> Option<Self> {
        live.opens.enter().then_some(Self { live })
    }
}

impl Deref for OpenInode {
    type Target = Arc<LiveInode>;

    fn deref(&self) -> &Arc<LiveInode> {
        &self.live
    }
}

impl Clone for OpenInode {
    fn clone(&self) -> Self {
        self.live.opens.enter_again();
        Self { live: self.live.clone() }
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        self.live.opens.leave();
    }
}

/// How often an inode is open, and whether it has a name.
#[derive(Debug, Default)]
pub(crate) struct Opens(AtomicU64);

impl Opens {
    /// Counts one more, unless there is no name. Returns whether it did.
    fn enter(&self) -> bool {
        let more = |word| (word & UNLINKED == 0).then_some(word + 1);
        self.0.fetch_update(AcqRel, Acquire, more).is_ok()
    }

    /// Counts one more open of an inode that the caller has open.
    fn enter_again(&self) {
        self.0.fetch_add(1, AcqRel);
    }

    fn leave(&self) {
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
    fn what_has_no_name_is_kept_open_and_not_opened() {
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
