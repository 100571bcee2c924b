//! Which inodes have data that is not written back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::inode::id::InodeId;
use crate::inode::live::{InodeState, LiveInode};

/// Inodes with data that is not written back.
#[derive(Default)]
pub(crate) struct DirtyInodes {
    inodes: Mutex<BTreeMap<InodeId, (Arc<LiveInode>, u64)>>,
    len_bytes: AtomicU64,
}

impl DirtyInodes {
    /// Enters a inode, whose state is locked, with so much dirty data.
    pub(crate) fn insert(&self, live: &Arc<LiveInode>, dirty_bytes: u64) {
        let before = self.inodes.lock().insert(live.id(), (live.clone(), dirty_bytes));
        self.len_bytes.fetch_add(dirty_bytes, Relaxed);
        self.len_bytes.fetch_sub(before.map_or(0, |(_, bytes)| bytes), Relaxed);
    }

    /// Notes how much dirty data a inode has now that some was written back; its state is locked.
    pub(crate) fn update(&self, live: &Arc<LiveInode>, state: &InodeState) {
        if !state.is_clean() {
            return self.insert(live, state.unwritten_bytes());
        }
        let before = self.inodes.lock().remove(&live.id());
        self.len_bytes.fetch_sub(before.map_or(0, |(_, bytes)| bytes), Relaxed);
    }

    /// Dirty data of all of them, in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Relaxed)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    /// Forgets what is dirty in a subvolume of which nothing is open.
    pub(crate) fn discard(&self, subvolume: u64) {
        let inodes = self.all().into_iter().filter(|live| live.id().subvolume == subvolume);
        for live in inodes {
            // Another thread may be about to write it back.
            let _flushing = live.flushing.lock();
            let mut state = live.write();
            state.clean();
            self.update(&live, &state);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<LiveInode>> {
        self.inodes.lock().values().map(|(live, _)| live.clone()).collect()
    }
}
