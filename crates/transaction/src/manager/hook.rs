//! The file system's own part in transactions.

use std::ops::Range;

use super::Exclusive;
use crate::error::Result;

/// The work of a file system above this crate in commits, and to free space.
pub trait TransactionHook: Send + Sync {
    /// Inserts queued changes into trees before a commit begins. Other threads go on meanwhile.
    /// This must not need a commit: it reserves with
    /// [`Space::try_reserve`](crate::space::Space::try_reserve) and joins with
    /// [`join`](super::TransactionManager::join). An error fails the commit and has no other
    /// consequence.
    fn before_commit(&self) -> Result<()>;

    /// Inserts everything that the committed state still lacks into the trees. An error makes the
    /// file system read-only.
    fn in_commit(&self, exclusive: &Exclusive<'_>) -> Result<()>;

    /// Whether anything is queued that the commit in progress has not taken. If nothing is, the
    /// next commit in the background waits until a thread joins.
    fn has_more(&self) -> bool {
        false
    }

    /// Inserts queued changes into trees, and so gives back the surplus of their reservations. This
    /// reserves nothing: a reservation could lead back here.
    fn flush_queued(&self) -> Result<()> {
        Ok(())
    }

    /// Frees the space of deleted files and subvolumes, except where another thread
    /// [does so](super::TransactionManager::begin_cleaning). This reserves with
    /// [`Priority::Cleaning`](crate::space::Priority::Cleaning) only. It skips what it cannot free.
    fn clean_deleted(&self) -> Result<()> {
        Ok(())
    }

    /// The content of these ranges of logical addresses lies elsewhere from now on, in order and
    /// apart from each other. What was remembered about the addresses is to be forgotten: other
    /// content may come there once the transaction is durable.
    ///
    /// No thread is joined. Fingers need no word, since they notice that blocks changed, and kept
    /// states need none, since their space is withheld.
    fn moved(&self, ranges: &[Range<u64>]) {
        let _ = ranges;
    }
}
