//! A subvolume that can change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_btree::LiveTree;
use larder_transaction::space::Priority;

use crate::error::{Error, Result};
use crate::live::ids::InodeNumbers;

/// The part of a subvolume that can change.
pub(crate) struct LiveSubvolume {
    pub(crate) tree: Arc<LiveTree>,
    pub(crate) inode_numbers: InodeNumbers,
    /// Changes only while transactions are quiesced.
    pub(crate) is_read_only: AtomicBool,
    /// It was deleted, and remains for its open inodes. Changes only while transactions are
    /// quiesced.
    pub(crate) is_deleted: AtomicBool,
}

impl LiveSubvolume {
    pub(crate) fn tree(&self) -> &Arc<LiveTree> {
        &self.tree
    }

    /// How much of the global reserve may be used for removing parts of files in it.
    pub(crate) fn cut_priority(&self) -> Priority {
        Priority::of_cut(self.tree.last_snapshot())
    }

    /// How much of the global reserve may be used for deletions in it.
    pub(crate) fn deletion_priority(&self) -> Priority {
        Priority::of_deletion(self.tree.last_snapshot())
    }

    /// Whether it was deleted. The answer stays true as long as the thread is joined.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Relaxed)
    }

    /// Refuses operations that need a subvolume with a name. The answer stays true as long as the
    /// thread is joined.
    pub(crate) fn check_not_deleted(&self) -> Result<()> {
        if self.is_deleted() { Err(Error::NoSuchSubvolume(self.tree.id())) } else { Ok(()) }
    }

    /// Refuses changes. The answer stays true as long as the thread is joined.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only.load(Ordering::Relaxed) {
            return Err(Error::ReadOnlySubvolume);
        }
        Ok(())
    }
}
