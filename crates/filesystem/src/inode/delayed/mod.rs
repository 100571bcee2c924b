//! Delayed items: what a directory's index and an inode's item are to become waits in memory, and goes
//! into the trees many at a time.
//!
//! A name is in a DIR_ITEM, which is found by its hash, and in a DIR_INDEX, by which it is listed. The
//! first goes into the tree at once: it says whether the name is there. The second is queued in its
//! directory; indexes ascend, so that a whole queue goes into one leaf after another. The item of an
//! inode that changes again and again is written once.
//!
//! # Invariants
//! - A inode is among the [`DelayedInodes`] if and only if something of it is queued. It stays in memory
//!   meanwhile, so that nobody reads an item from the tree that is newer here.
//! - An index is to be inserted and not in the tree, or in the tree, or in the tree and to be deleted. Who
//!   lists a directory holds its queue while it reads the tree, so that it sees each name once.
//! - What is queued has room that was promised. There is a unit, which is what inserting one item takes
//!   at worst, for every leaf that queued insertions will touch, for every deletion, and for an inode's
//!   item. What finds no room is not queued: the handle of its maker has room for doing it at once.
//!   Queueing therefore never fails.
//! - Every commit puts all that is queued into the trees while the door is closed, and so does every
//!   snapshot before it is taken. Most of it is put there before, while others go on.
//! - An inode without a name has nothing queued: who has it open last leaves only the tree's items to
//!   be deleted.
//! - The queues are bounded, each and all together; who finds them full empties them. They are the
//!   first step of the flushing ladder.
//! - Lock order: the transaction's door, a inode's state, its queue, tree blocks and the table of delayed
//!   inodes. Who puts what is queued into a tree is inside the door.

pub(crate) mod flush;
pub(crate) mod items;
pub(crate) mod listing;
pub(crate) mod queue;
pub(crate) mod reservation;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_format::item::InodeItem;
use larder_format::node::leaf_data_size;
use larder_transaction::space::Space;
use parking_lot::Mutex;

use crate::core::tuning::Tuning;
use crate::filesystem::stats::DelayedStats;
use crate::inode::delayed::queue::IndexQueue;
use crate::inode::delayed::reservation::{ItemReservations, ReservedItems};
use crate::inode::live::{InodeId, LiveInode};

/// Index items of one directory beyond which they are put into the tree: some leaves full.
const MOST_INSERTIONS: usize = 1024;
/// Each of these keeps room of its own.
const MOST_DELETIONS: usize = 256;
/// Items of all inodes together beyond which they are put into the trees.
const MOST_ITEMS: u64 = 32_768;

/// The inodes that have something queued.
pub(crate) struct DelayedInodes {
    tuning: Tuning,
    leaf_bytes: usize,
    reservations: ItemReservations,
    inodes: Mutex<BTreeMap<InodeId, Arc<LiveInode>>>,
    /// Items of all of them.
    items: AtomicU64,
    /// Somebody is at it to put all of them into the trees.
    is_flushing: AtomicBool,
    flushed_items: AtomicU64,
    flushes: AtomicU64,
}

impl DelayedInodes {
    pub(crate) fn new(space: Arc<Space>, nodesize: u32, tuning: Tuning) -> Self {
        Self {
            tuning,
            leaf_bytes: leaf_data_size(nodesize as usize),
            reservations: ItemReservations::new(space),
            inodes: Mutex::default(),
            items: AtomicU64::new(0),
            is_flushing: AtomicBool::new(false),
            flushed_items: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }

    /// Whether nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    fn all(&self) -> Vec<Arc<LiveInode>> {
        self.inodes.lock().values().cloned().collect()
    }

    /// Forgets everything that is queued. Inodes and this lead to each other.
    pub(crate) fn clear(&self) {
        let inodes = std::mem::take(&mut *self.inodes.lock());
        for live in inodes.values() {
            live.delayed.clear();
        }
    }

    /// Forgets what is queued in a subvolume of which nothing is open.
    pub(crate) fn discard(&self, subvolume: u64) {
        for live in self.all().iter().filter(|live| live.id().subvolume == subvolume) {
            live.discard_delayed();
        }
    }

    pub(crate) fn stats(&self) -> DelayedStats {
        DelayedStats {
            queued_items: self.items.load(Relaxed),
            reserved_bytes: self.reservations.bytes(),
            peak_reserved_bytes: self.reservations.peak_bytes(),
            flushed_items: self.flushed_items.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
        }
    }
}

/// What is queued of one inode; there is something.
pub(crate) struct Queued {
    item: Option<InodeItem>,
    index: IndexQueue,
    reserved: ReservedItems,
}

impl Queued {
    fn is_empty(&self) -> bool {
        self.item.is_none() && self.index.is_empty()
    }

    fn len(&self) -> u64 {
        self.index.len() as u64 + u64::from(self.item.is_some())
    }

    fn reservations(&self) -> u64 {
        self.index.reservations() + u64::from(self.item.is_some())
    }
}
