//! Read-only subvolumes that a send walks in their committed state, while the file system goes on
//! changing.
//!
//! # Invariants
//! - As long as a subvolume has a guard, its tree is the committed one: it is neither deleted nor
//!   made writable, and its inodes without a name stay until the file system is opened for writing
//!   again.
//! - A thread takes a guard while transactions are quiesced. Threads that were joined before have
//!   left then, and a commit has made their changes durable before the tree is walked.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_btree::{Tree, TreeRoot};

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::subvolume::handle::{Subvolume, SubvolumeState};

/// A read-only subvolume in its committed state. In a file system that is open for writing nothing
/// can change or delete it as long as this exists, and it is read without locks.
#[derive(Debug)]
pub struct SendGuard {
    committed: Subvolume,
    /// In a file system that is open for writing.
    _counted: Option<CountedGuard>,
}

/// A guard that was counted.
#[derive(Debug)]
struct CountedGuard {
    filesystem: Filesystem,
    id: u64,
}

impl SendGuard {
    /// Guards a subvolume against changes while it is sent. All its changes are durable when this
    /// returns.
    ///
    /// # Errors
    /// [`Error::NotReadOnly`] for one that is writable.
    #[doc(hidden)]
    pub fn new(subvolume: &Subvolume) -> Result<Self> {
        let (filesystem, id) = (subvolume.filesystem(), subvolume.id());
        let Some(live) = subvolume.try_live() else {
            let is_read_only = subvolume.root_item().is_read_only();
            let held = Self { committed: subvolume.clone(), _counted: None };
            return if is_read_only { Ok(held) } else { Err(Error::NotReadOnly(id)) };
        };
        let writer = filesystem.writer()?;
        let exclusive = writer.manager.quiesce();
        live.check_not_deleted()?;
        if !live.is_read_only.load(Relaxed) {
            return Err(Error::NotReadOnly(id));
        }
        let counted = CountedGuard::new(filesystem, id);
        drop(exclusive);
        filesystem.sync()?;
        let (key, item) = filesystem.core().root_item(id)?.ok_or(Error::NoSuchSubvolume(id))?;
        let tree = Tree::new(filesystem.core().cache().clone(), TreeRoot::of_item(id, &item));
        let state = SubvolumeState::new(filesystem.clone(), tree, None, item, key.offset);
        Ok(Self { committed: Arc::new(state).into(), _counted: Some(counted) })
    }
}

impl Deref for SendGuard {
    type Target = Subvolume;

    fn deref(&self) -> &Subvolume {
        &self.committed
    }
}

impl CountedGuard {
    fn new(filesystem: &Filesystem, id: u64) -> Self {
        if let Some(writer) = filesystem.try_writer() {
            *writer.send_guards.count_of.lock().entry(id).or_default() += 1;
        }
        Self { filesystem: filesystem.clone(), id }
    }
}

impl Drop for CountedGuard {
    fn drop(&mut self) {
        let Some(writer) = self.filesystem.try_writer() else { return };
        let mut count_of = writer.send_guards.count_of.lock();
        if let Some(count) = count_of.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                count_of.remove(&self.id);
            }
        }
    }
}
