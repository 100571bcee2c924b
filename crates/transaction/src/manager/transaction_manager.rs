//! The transactional engine of one file system that is open for writing.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use larder_btree::Tree;
use larder_format::Superblock;
use larder_locks::rank::COMMITTING;
use larder_locks::{RankedMutex, RankedMutexGuard};
use larder_volume::Volume;
use parking_lot::Mutex;

use super::abort::{Abort, Aborted};
use super::bookkeeping::Bookkeeping;
use super::cleaning::Cleaning;
use super::commit_timer::CommitTimer;
use super::durable::DurableState;
use super::exclusive::Exclusive;
use super::finishing::Finishing;
use super::handle::Handle;
use super::hook::TransactionHook;
use super::join_gate::JoinGate;
use super::space_waiters::SpaceWaiters;
use super::superblock::NextSuperblock;
use super::tree_space::TreeSpace;
use super::trees::Trees;
use crate::error::{Error, Result};
use crate::extent::{ChecksumItems, ExtentItems};
use crate::log::Logs;
use crate::quota::Quotas;
use crate::space::Space;

/// The transactional engine of one file system that is open for writing.
pub struct TransactionManager {
    pub(super) volume: Arc<Volume>,
    pub(super) trees: Trees,
    pub(super) tree_space: Arc<TreeSpace>,
    pub(super) bookkeeping: Bookkeeping,
    pub(super) superblock: NextSuperblock,
    pub(super) durable: Arc<DurableState>,
    pub(super) abort: Abort,
    pub(super) gate: JoinGate,
    pub(super) space_waiters: SpaceWaiters,
    /// The logs of the running transaction. Locked by the thread that commits or writes a log.
    pub(super) committing: RankedMutex<Logs, COMMITTING>,
    /// Locked by the thread that adds, removes, resizes or converts.
    pub(super) device_work: Mutex<()>,
    pub(super) finishing: Mutex<Finishing>,
    pub(super) hook: OnceLock<Arc<dyn TransactionHook>>,
}

impl TransactionManager {
    /// The devices.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The trees.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// Block groups and reservations.
    pub fn space(&self) -> &Arc<Space> {
        &self.tree_space.space
    }

    /// What subvolumes refer to and their limits, if quotas are on.
    pub fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.tree_space.quotas()
    }

    /// The running transaction.
    pub fn generation(&self) -> u64 {
        self.trees.forest().generation()
    }

    /// Bytes of changed tree blocks that are on no device yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.trees.forest().stats().dirty_blocks * u64::from(self.volume.nodesize())
    }

    /// The generation of the last durable state.
    pub fn durable_generation(&self) -> u64 {
        self.durable.generation()
    }

    /// The tree of tree roots of the last durable state, for readers without locks.
    pub fn durable_root_tree(&self) -> Tree {
        Tree::new(self.trees.forest().cache().clone(), self.durable.root())
    }

    /// When the last durable state was committed; `None` if that was before the file system was
    /// opened.
    pub fn committed_at(&self) -> Option<SystemTime> {
        self.durable.committed_at()
    }

    /// The superblock of the last commit, with the changes that the next commit writes.
    pub fn superblock(&self) -> Superblock {
        self.superblock.get()
    }

    /// Changes the superblock that the next commit writes: label, features, and the default fields
    /// that commits do not set themselves.
    pub fn change_superblock<T>(&self, change: impl FnOnce(&mut Superblock) -> T) -> T {
        let changed = self.superblock.change(change);
        self.note_work();
        changed
    }

    /// Makes the next commit in the background due after its interval. A thread that joins or
    /// changes the superblock need not call this.
    pub fn note_work(&self) {
        self.tree_space.timer.note_work();
    }

    /// Sets the hook, once.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_hook(&self, hook: Arc<dyn TransactionHook>) {
        assert!(self.hook.set(hook).is_ok(), "a manager has one hook");
    }

    /// Joins the running transaction without reserved space: to run queued changes, or to look.
    ///
    /// # Panics
    /// If this thread has a handle already.
    pub fn join(&self) -> Result<Handle<'_>> {
        Handle::new(self)
    }

    /// Waits until every thread has ended its handle, and keeps others from joining until the
    /// result is dropped.
    ///
    /// # Panics
    /// If this thread has a [`Handle`].
    pub fn quiesce(&self) -> Exclusive<'_> {
        self.note_work();
        Exclusive::new(self)
    }

    /// Begins to delete something that takes more than one step: a subvolume, or a file without a
    /// name. Threads that find no space from now on wait for it. So the caller reserves with
    /// [`Priority::Cleaning`] only, and waits for nothing that a thread may hold while it reserves.
    ///
    /// [`Priority::Cleaning`]: crate::space::Priority::Cleaning
    pub fn begin_cleaning(&self) -> Cleaning<'_> {
        self.space_waiters.cleanings.begin()
    }

    /// Aborts the running transaction: the file system is read-only from now on, and the last
    /// durable state is on the devices. The first reason is kept.
    pub fn abort(&self, reason: Error) {
        self.abort.abort(reason);
    }

    /// Why and since when the file system is read-only, if it was made so.
    pub fn aborted(&self) -> Option<&Aborted> {
        self.abort.get()
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        self.abort.check_alive()
    }

    pub(super) fn timer(&self) -> &CommitTimer {
        &self.tree_space.timer
    }

    /// Waits for the commit in progress, and keeps others from beginning.
    pub(crate) fn lock_committing(&self) -> RankedMutexGuard<'_, Logs, COMMITTING> {
        self.committing.lock()
    }

    /// Calls `look` while neither a commit nor a log is being written, so that no superblock is.
    ///
    /// # Panics
    /// If this thread has a [`Handle`].
    pub fn between_commits<T>(&self, look: impl FnOnce() -> T) -> T {
        let _no_commit = self.lock_committing();
        look()
    }

    /// Whether the next commit changes fields of the superblock that commits do not set themselves.
    pub(crate) fn is_superblock_dirty(&self) -> bool {
        self.superblock.is_dirty()
    }

    /// The rules of extent items in the running transaction.
    pub(crate) fn extent_items(&self) -> ExtentItems {
        self.tree_space.extent_items(self.generation())
    }

    /// Calls `look` while no thread edits the checksum tree. An edit takes an item away before it
    /// puts the rest of it back: so only here is a checksum missing for certain.
    pub fn with_still_checksums<T>(&self, look: impl FnOnce() -> T) -> T {
        self.bookkeeping.with_still_checksums(look)
    }

    /// The rules of checksum items.
    pub(crate) fn checksum_items(&self) -> ChecksumItems {
        self.bookkeeping.checksum_items()
    }
}

impl std::fmt::Debug for TransactionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionManager")
            .field("generation", &self.generation())
            .field("durable_generation", &self.durable_generation())
            .field("space", self.space())
            .field("aborted", &self.aborted())
            .finish_non_exhaustive()
    }
}
