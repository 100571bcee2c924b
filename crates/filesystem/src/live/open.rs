//! Open inodes: the handles that keep an inode's changes.
//!
//! # Invariants
//! - A caller of the library has an inode through an [`OpenInode`] and in no other way. The sets of
//!   dirty and delayed inodes, and the threads that write them back, only refer to the
//!   [`LiveInode`].
//! - The number of [`OpenInode`]s and whether the inode has a name are one word. An inode that has
//!   no name and is not open stays so: no thread can open it or give it a name. Only then may its
//!   data be dropped.

use std::ops::Deref;
use std::sync::Arc;

use crate::live::inode::LiveInode;

/// A handle of an inode: as long as there is one, the inode's changes are kept, whether it has a
/// name or not.
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
