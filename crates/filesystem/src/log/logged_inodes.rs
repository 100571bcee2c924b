//! Which inodes the logs of the running transaction have.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::inode::id::InodeId;

/// The inodes that logs have, and those of them whose names have changed since. What a log says of
/// names must be true of all its inodes at one time, or two of them could claim one name.
#[derive(Default)]
pub(crate) struct LoggedInodes {
    /// No thread takes a lock while there are none.
    are_there: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    logged: HashSet<InodeId>,
    renamed: BTreeSet<InodeId>,
}

impl LoggedInodes {
    /// Notes that an inode gained or lost a name. The thread is joined.
    pub(crate) fn names_changed(&self, id: InodeId) {
        if !self.are_there.load(Relaxed) {
            return;
        }
        let mut inner = self.inner.lock();
        if inner.logged.contains(&id) {
            inner.renamed.insert(id);
        }
    }

    /// The inodes whose names have changed. Transactions are quiesced.
    pub(crate) fn renamed(&self) -> Vec<InodeId> {
        self.inner.lock().renamed.iter().copied().collect()
    }

    /// Notes that the logs now have the first inodes as they are, and do not have the others.
    /// Transactions are quiesced.
    pub(crate) fn logged(
        &self,
        there: impl IntoIterator<Item = InodeId>,
        gone: impl IntoIterator<Item = InodeId>,
    ) {
        let mut inner = self.inner.lock();
        inner.renamed.clear();
        inner.logged.extend(there);
        for id in gone {
            inner.logged.remove(&id);
        }
        self.are_there.store(!inner.logged.is_empty(), Relaxed);
    }

    /// Notes that there are no logs. Transactions are quiesced.
    pub(crate) fn clear(&self) {
        *self.inner.lock() = Inner::default();
        self.are_there.store(false, Relaxed);
    }
}
