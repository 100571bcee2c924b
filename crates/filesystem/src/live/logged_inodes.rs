//! Which inodes the logs of the running transaction have, and which were synced lately.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::item::id::InodeId;

/// Of the inodes that were synced and that no log has, the latest so many are remembered.
const MOST_SYNCED: usize = 65_536;

/// The inodes that logs have, others that were synced lately, and those of both whose names have
/// changed since.
///
/// What a log says of names must be true of all its inodes at one time, or two of them could claim
/// one name. And programs sync a file under a temporary name, rename it, and then sync others that
/// refer to it: the next sync of any file takes the rename along, however many commits came before
/// the sync or after it.
#[derive(Default)]
pub(crate) struct LoggedInodes {
    /// No thread takes a lock while there are none.
    are_there: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    logged: HashSet<InodeId>,
    synced: Synced,
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
        if inner.logged.contains(&id) || inner.synced.ids.contains(&id) {
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
        let logged = mem::take(&mut inner.logged);
        inner.synced.extend(logged);
        inner.renamed.clear();
        inner.update(&self.are_there);
    }

    /// Notes that the inodes were synced and that a commit has them.
    pub(crate) fn synced_by_commit(&self, ids: impl IntoIterator<Item = InodeId>) {
        let mut inner = self.inner.lock();
        inner.synced.extend(ids);
        inner.update(&self.are_there);
    }
}

/// Inodes that were synced, and the same in the order of their first sync.
#[derive(Default)]
struct Synced {
    ids: HashSet<InodeId>,
    in_order: VecDeque<InodeId>,
}

impl Synced {
    fn extend(&mut self, ids: impl IntoIterator<Item = InodeId>) {
        self.in_order.extend(ids.into_iter().filter(|id| self.ids.insert(*id)));
        let too_many = self.in_order.len().saturating_sub(MOST_SYNCED);
        for id in self.in_order.drain(..too_many) {
            self.ids.remove(&id);
        }
    }
}

impl Inner {
    fn update(&self, are_there: &AtomicBool) {
        are_there.store(!self.logged.is_empty() || !self.synced.ids.is_empty(), Relaxed);
    }
}
