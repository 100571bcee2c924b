//! Read-only subvolumes that somebody walks as they are committed, while the file system goes on changing.
//!
//! # Invariants
//! - As long as a subvolume is held its tree is the one that was committed: it is neither deleted nor made
//!   writable, and what it has without a name stays until the file system is opened for writing again.
//! - A hold is taken with the door closed, and looked at with the door closed or from inside: who was inside
//!   when it was taken has left, and what that changed is committed before the tree is walked.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_btree::{Tree, TreeRoot};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::subvolume::handle::{Subvolume, SubvolumeState};

/// How often each subvolume is held.
#[derive(Default)]
pub(crate) struct Holds {
    count_of: Mutex<HashMap<u64, u32>>,
}

/// A read-only subvolume as it is committed. In a file system that is open for writing nothing can change
/// or delete it as long as this is there, and it is read without locks.
#[derive(Debug)]
pub struct HeldSubvolume {
    committed: Subvolume,
    /// What holds it, where anything could change it.
    _hold: Option<Hold>,
}

/// A hold that was counted.
#[derive(Debug)]
struct Hold {
    filesystem: Filesystem,
    id: u64,
}

impl Subvolume {
    /// Holds the subvolume as it is. All that was done to it is durable when this returns.
    ///
    /// # Errors
    /// [`Error::NotReadOnly`] for one that can change.
    pub fn hold(&self) -> Result<HeldSubvolume> {
        let (filesystem, id) = (self.filesystem(), self.id());
        let Some(live) = self.try_live() else {
            let is_read_only = self.root_item().is_read_only();
            let held = HeldSubvolume { committed: self.clone(), _hold: None };
            return if is_read_only { Ok(held) } else { Err(Error::NotReadOnly(id)) };
        };
        let writer = filesystem.writer()?;
        let exclusive = writer.manager.quiesce();
        live.check_not_deleted()?;
        if !live.is_read_only.load(Relaxed) {
            return Err(Error::NotReadOnly(id));
        }
        let hold = Hold::new(filesystem, id);
        drop(exclusive);
        filesystem.sync()?;
        let (key, item) = filesystem.root_item(id)?.ok_or(Error::NoSuchSubvolume(id))?;
        let tree = Tree::new(filesystem.cache().clone(), TreeRoot::of_item(id, &item));
        let state = SubvolumeState::new(filesystem.clone(), tree, None, item, key.offset);
        Ok(HeldSubvolume { committed: Arc::new(state).into(), _hold: Some(hold) })
    }
}

impl Deref for HeldSubvolume {
    type Target = Subvolume;

    fn deref(&self) -> &Subvolume {
        &self.committed
    }
}

impl Holds {
    /// Whether the subvolume is held.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.count_of.lock().contains_key(&id)
    }

    /// Refuses what would change a subvolume that is held.
    pub(crate) fn check_free(&self, id: u64) -> Result<()> {
        if self.has(id) { Err(Error::NotPermitted("it is being sent")) } else { Ok(()) }
    }
}

impl Hold {
    fn new(filesystem: &Filesystem, id: u64) -> Self {
        if let Some(writer) = filesystem.try_writer() {
            *writer.holds.count_of.lock().entry(id).or_default() += 1;
        }
        Self { filesystem: filesystem.clone(), id }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(writer) = self.filesystem.try_writer() else { return };
        let mut count_of = writer.holds.count_of.lock();
        if let Some(count) = count_of.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                count_of.remove(&self.id);
            }
        }
    }
}
