//! The inodes with dirty data.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::dirty_space::DirtySpace;
use crate::item::id::InodeId;
use crate::live::inode::{InodeState, LiveInode};

/// Inodes with dirty data.
pub(crate) struct DirtyInodes {
    inodes: Mutex<BTreeMap<InodeId, (Arc<LiveInode>, u64)>>,
    space: DirtySpace,
}

impl DirtyInodes {
    /// None yet. The data of all of them takes `most_bytes` at most.
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self { inodes: Mutex::default(), space: DirtySpace::new(most_bytes as u64) }
    }

    /// The memory for the data of all of them.
    pub(crate) fn space(&self) -> &DirtySpace {
        &self.space
    }

    /// Inserts an inode, whose state is locked, with its dirty data.
    pub(crate) fn insert(&self, live: &Arc<LiveInode>, state: &InodeState) {
        let bytes = state.pages.memory_bytes();
        let before = self.inodes.lock().insert(live.id(), (live.clone(), bytes));
        self.space.changed(before.map_or(0, |(_, bytes)| bytes), bytes);
    }

    /// Notes how much dirty data an inode has after a writeback; its state is locked.
    pub(crate) fn update(&self, live: &Arc<LiveInode>, state: &InodeState) {
        if !state.pages.is_clean() {
            return self.insert(live, state);
        }
        let before = self.inodes.lock().remove(&live.id());
        self.space.changed(before.map_or(0, |(_, bytes)| bytes), 0);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    /// Drops the dirty data of a subvolume of which nothing is open.
    pub(crate) fn discard(&self, subvolume: u64) {
        let inodes = self.all().into_iter().filter(|live| live.id().subvolume == subvolume);
        for live in inodes {
            // Another thread may be about to write it back.
            let _flushing = live.flushing.lock();
            let mut state = live.write();
            state.pages.forget();
            self.update(&live, &state);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<LiveInode>> {
        self.inodes.lock().values().map(|(live, _)| live.clone()).collect()
    }
}
