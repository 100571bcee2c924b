//! Read-only subvolumes that a send walks in their committed state, while the file system goes on
//! changing.
//!
//! # Invariants
//! - As long as a subvolume has a guard, its tree is the committed one: it is neither deleted nor
//!   made writable, and its inodes without a name stay until the file system is opened for writing
//!   again.
//! - A thread takes a guard while transactions are quiesced. Threads that were joined before have
//!   left then, and a commit has made their changes durable before the tree is walked.
//! - The send reads a durable state whose space is kept. If writers need the space, the state is
//!   given up; the subvolume still has all of it, unless content was moved. So a send whose state
//!   was given up and during which content moved has [failed](SendGuard::check).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use larder_transaction::KeptTrees;

use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;
use crate::handle::subvolume::Subvolume;

/// A read-only subvolume in its committed state. In a file system that is open for writing nothing
/// can change or delete it as long as this exists, and it is read without locks.
#[derive(Debug)]
pub struct SendGuard {
    committed: Subvolume,
    /// In a file system that is open for writing.
    counted: Option<CountedGuard>,
    kept: Option<KeptTrees>,
}

/// A guard that was counted.
#[derive(Debug)]
struct CountedGuard {
    filesystem: Filesystem,
    id: u64,
    /// How often content had moved before.
    moves: u64,
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
            let held = Self { committed: subvolume.clone(), counted: None, kept: None };
            return if is_read_only { Ok(held) } else { Err(Error::NotReadOnly(id)) };
        };
        let writer = filesystem.writer()?;
        let exclusive = writer.manager.quiesce();
        live.check_not_deleted()?;
        if !live.is_read_only.load(Relaxed) {
            return Err(Error::NotReadOnly(id));
        }
        let counted = CountedGuard::new(filesystem, writer, id);
        drop(exclusive);
        filesystem.sync()?;
        let kept = writer.manager.keep_trees();
        let (volume, cache) = (filesystem.volume().clone(), filesystem.core().cache().clone());
        let core = Core::of_state(volume, cache, kept.root_tree().clone())?;
        let committed = Filesystem::from(Arc::new(core)).subvolume_by_id(id)?;
        Ok(Self { committed, counted: Some(counted), kept: Some(kept) })
    }

    /// Whether all that was read until now is what the subvolume has.
    ///
    /// # Errors
    /// [`Error::StateEnded`] if content was moved, and the space where it had been was needed.
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        let is_kept = self.kept.as_ref().is_none_or(KeptTrees::is_kept);
        if is_kept || self.counted.as_ref().is_none_or(CountedGuard::has_stayed) {
            return Ok(());
        }
        let id = self.committed.id();
        Err(Error::StateEnded(format!(
            "subvolume {id} was moved while it was sent, and programs needed the space where it had \
             been: send it again"
        )))
    }
}

impl Deref for SendGuard {
    type Target = Subvolume;

    fn deref(&self) -> &Subvolume {
        &self.committed
    }
}

impl CountedGuard {
    fn new(filesystem: &Filesystem, writer: &Writer, id: u64) -> Self {
        *writer.send_guards.count_of.lock().entry(id).or_default() += 1;
        Self { filesystem: filesystem.clone(), id, moves: writer.moves.load(Acquire) }
    }

    /// Whether no content has moved.
    fn has_stayed(&self) -> bool {
        let writer = self.filesystem.try_writer();
        writer.is_none_or(|writer| writer.moves.load(Acquire) == self.moves)
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
