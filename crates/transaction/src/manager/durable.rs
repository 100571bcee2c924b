//! The last state that is durable. The volume has its superblock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::SystemTime;

use larder_btree::TreeRoot;
use larder_format::Superblock;
use parking_lot::{Mutex, RwLock};

/// The last state that is durable.
#[derive(Debug)]
pub(super) struct DurableState {
    root: RwLock<TreeRoot>,
    generation: AtomicU64,
    committed_at: Mutex<Option<SystemTime>>,
}

impl DurableState {
    /// The state that `superblock` leads to, as it was found on the devices.
    pub(super) fn new(superblock: &Superblock) -> Self {
        Self {
            root: RwLock::new(TreeRoot::of_root_tree(superblock)),
            generation: AtomicU64::new(superblock.generation.get()),
            committed_at: Mutex::default(),
        }
    }

    /// Replaces it by the state that `superblock` leads to, which has just become durable.
    pub(super) fn advance(&self, superblock: &Superblock) {
        *self.root.write() = TreeRoot::of_root_tree(superblock);
        self.generation.store(superblock.generation.get(), Release);
    }

    /// Notes the end of the commit that made it durable.
    pub(super) fn note_commit(&self) {
        *self.committed_at.lock() = Some(SystemTime::now());
    }

    /// The address of the tree of tree roots.
    pub(super) fn root(&self) -> TreeRoot {
        *self.root.read()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// When it was committed; `None` if that was before the file system was opened.
    pub(super) fn committed_at(&self) -> Option<SystemTime> {
        *self.committed_at.lock()
    }
}
