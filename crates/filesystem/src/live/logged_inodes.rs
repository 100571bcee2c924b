//! Which inodes the logs of the running transaction have, and which were synced lately.

use std::collections::{BTreeSet, HashSet};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::item::id::InodeId;

/// The inodes that logs have, those that were synced in the transaction before, and those of both
/// whose names have changed since.
///
/// What a log says of names must be true of all its inodes at one time, or two of them could claim
/// one name. And programs sync a file under a temporary name, rename it, and then sync others that
/// refer to it: the next sync of any file takes the rename along, also if a commit came in between.
#[derive(Default)]
pub(crate) struct LoggedInodes {
    /// No thread takes a lock while there are none.
    are_there: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    logged: HashSet<InodeId>,
    synced_before: HashSet<InodeId>,
    renamed: BTreeSet<InodeId>,
}

/// An inode whose names have changed since it was synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renamed {
    pub(crate) id: InodeId,
    /// Whether a log has it.
    pub(crate) is_logged: bool,
}

impl LoggedInodes {
    /// Notes that an inode gained or lost a name. The thread is joined.
    pub(crate) fn names_changed(&self, id: InodeId) {
        if !self.are_there.load(Relaxed) {
            return;
        }
        let mut inner = self.inner.lock();
        if inner.logged.contains(&id) || inner.synced_before.contains(&id) {
            inner.renamed.insert(id);
        }
    }

    /// Whether a log has an inode.
    pub(crate) fn is_logged(&self, id: InodeId) -> bool {
        self.inner.lock().logged.contains(&id)
    }

    /// The inodes whose names have changed. Transactions are quiesced.
    pub(crate) fn renamed(&self) -> Vec<Renamed> {
        let inner = self.inner.lock();
        let renamed = |&id| Renamed { id, is_logged: inner.logged.contains(&id) };
        inner.renamed.iter().map(renamed).collect()
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
        inner.update(&self.are_there);
    }

    /// Notes that a commit makes all logs void. Transactions are quiesced.
    pub(crate) fn committed(&self) {
        let mut inner = self.inner.lock();
        inner.synced_before = mem::take(&mut inner.logged);
        inner.renamed.clear();
        inner.update(&self.are_there);
    }

    /// Notes that a commit has synced the inodes.
    pub(crate) fn synced_by_commit(&self, ids: impl IntoIterator<Item = InodeId>) {
        let mut inner = self.inner.lock();
        inner.synced_before.extend(ids);
        inner.update(&self.are_there);
    }
}

impl Inner {
    fn update(&self, are_there: &AtomicBool) {
        are_there.store(!self.logged.is_empty() || !self.synced_before.is_empty(), Relaxed);
    }
}
