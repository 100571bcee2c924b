//! The transactional engine of one file system that is open for writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use larder_btree::{Forest, Tree};
use larder_format::Superblock;
use larder_volume::Volume;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::abort::{Abort, Aborted};
use super::bookkeeping::Bookkeeping;
use super::cleaning::{Cleaning, Cleanings};
use super::commit_timer::CommitTimer;
use super::device_stats::DeviceStats;
use super::durable::DurableState;
use super::hook::TransactionHook;
use super::join_gate::JoinGate;
use super::roots::Roots;
use super::superblock::NextSuperblock;
use super::system_trees::SystemTrees;
use super::tickets::TicketQueues;
use super::tree_space::TreeSpace;
use crate::error::{Error, Result};
use crate::extent::{ChecksumItems, ExtentItems};
use crate::log::Logs;
use crate::quota::Quotas;
use crate::space::Space;

/// The transactional engine of one file system that is open for writing.
pub struct TransactionManager {
    pub(super) volume: Arc<Volume>,
    pub(super) forest: Forest,
    pub(super) trees: Arc<SystemTrees>,
    pub(super) tree_space: Arc<TreeSpace>,
    pub(super) bookkeeping: Bookkeeping,
    pub(super) roots: Mutex<Roots>,
    pub(super) superblock: NextSuperblock,
    pub(super) durable: Arc<DurableState>,
    pub(super) abort: Abort,
    /// The logs of the running transaction.
    pub(super) logs: Mutex<Logs>,
    pub(super) gate: JoinGate,
    pub(super) cleanings: Cleanings,
    pub(super) tickets: TicketQueues,
    /// Locked by the thread that commits or writes a log.
    pub(super) committing: Mutex<()>,
    pub(super) device_stats: DeviceStats,
    /// Whether commits discard the space that they free.
    pub(super) discards: AtomicBool,
    pub(super) hooks: RwLock<Vec<Arc<dyn TransactionHook>>>,
}

impl TransactionManager {
    /// The devices.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The trees that change.
    pub fn forest(&self) -> &Forest {
        &self.forest
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
        self.forest.generation()
    }

    /// Bytes of tree blocks that were changed and are on no device yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.forest.stats().dirty_blocks * u64::from(self.volume.nodesize())
    }

    /// The generation of the last durable state.
    pub fn durable_generation(&self) -> u64 {
        self.durable.generation()
    }

    /// The tree of tree roots of the last durable state, for readers without locks.
    pub fn durable_root_tree(&self) -> Tree {
        Tree::new(self.forest.cache().clone(), self.durable.root())
    }

    /// When the last durable state was committed; `None` if that was before the file system was opened.
    pub fn committed_at(&self) -> Option<SystemTime> {
        self.durable.committed_at()
    }

    /// The superblock of the last commit, with the changes that the next commit writes.
    pub fn superblock(&self) -> Superblock {
        self.superblock.get()
    }

    /// Changes the superblock that the next commit writes: label, features, and the default fields that commits
    /// do not set themselves.
    pub fn change_superblock<T>(&self, change: impl FnOnce(&mut Superblock) -> T) -> T {
        let changed = self.superblock.change(change);
        self.note_work();
        changed
    }

    /// Makes commits discard the space that they free, or not. At first they do not.
    pub fn set_discards(&self, discards: bool) {
        self.discards.store(discards, Relaxed);
    }

    /// Makes the next commit in the background due after its interval. A thread that joins or changes the
    /// superblock need not call this.
    pub fn note_work(&self) {
        self.tree_space.timer.note_work();
    }

    /// Adds a hook after those that were added before.
    pub fn add_hook(&self, hook: Arc<dyn TransactionHook>) {
        self.hooks.write().push(hook);
    }

    /// Begins to delete something that takes more than one step: a subvolume, or a file without a name. Threads that
    /// find no space from now on wait for it. So the caller reserves with [`Priority::Cleaning`] only, and waits
    /// for nothing that a thread may hold while it reserves.
    ///
    /// [`Priority::Cleaning`]: crate::space::Priority::Cleaning
    pub fn begin_cleaning(&self) -> Cleaning<'_> {
        self.cleanings.begin()
    }

    /// Gives the running transaction up: the file system is read-only from now on, and the last durable state is
    /// on the devices. The first reason is kept.
    pub fn abort(&self, reason: Error) {
        self.abort.abort(reason);
    }

    /// Why the file system was made read-only, if it was.
    pub fn abort_reason(&self) -> Option<&Error> {
        self.aborted().map(|aborted| &*aborted.reason)
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
    pub(crate) fn lock_committing(&self) -> MutexGuard<'_, ()> {
        self.committing.lock()
    }

    pub(crate) fn lock_logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock()
    }

    pub(crate) fn give_up_log_blocks(&self) -> Result<()> {
        self.tree_space.give_up_log_blocks()
    }

    pub(crate) fn durable_superblock(&self) -> Box<Superblock> {
        self.durable.superblock()
    }

    /// Whether the next commit changes what commits do not set themselves in the superblock.
    pub(crate) fn is_superblock_dirty(&self) -> bool {
        self.superblock.is_dirty()
    }

    /// The rules of extent items in the running transaction.
    pub(crate) fn extent_items(&self) -> ExtentItems {
        self.tree_space.extent_items(self.generation())
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
