//! The table of the inodes with queued items.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_format::node::leaf_data_size;
use larder_transaction::space::Space;
use parking_lot::Mutex;

use crate::item::id::InodeId;
use crate::live::delayed::reservation::ItemReservations;
use crate::live::inode::LiveInode;
use crate::settings::tuning::Tuning;
use crate::stats::DelayedStats;

/// With more index items, those of one directory go into the tree: some full leaves.
pub(crate) const MOST_INSERTIONS: usize = 1024;
/// Each of these has a reservation of its own.
pub(crate) const MOST_DELETIONS: usize = 256;
/// With more items of all inodes together, they go into the trees.
const MOST_ITEMS: u64 = 32_768;
/// With less memory for delayed items there are fewer: each may keep an inode in memory.
const ITEM_BYTES: u64 = 2048;

/// The inodes with queued items.
pub(crate) struct DelayedInodes {
    pub(crate) tuning: Tuning,
    pub(crate) leaf_bytes: usize,
    pub(crate) most_items: u64,
    pub(crate) reservations: ItemReservations,
    pub(crate) inodes: Mutex<BTreeMap<InodeId, Arc<LiveInode>>>,
    /// Items of all of them.
    pub(crate) items: AtomicU64,
    /// A thread is inserting all of them into the trees.
    pub(crate) is_flushing: AtomicBool,
    pub(crate) flushed_items: AtomicU64,
    pub(crate) flushes: AtomicU64,
}

impl DelayedInodes {
    pub(crate) fn new(
        space: Arc<Space>,
        nodesize: u32,
        tuning: Tuning,
        dirty_bytes: usize,
    ) -> Self {
        Self {
            tuning,
            leaf_bytes: leaf_data_size(nodesize as usize),
            most_items: (dirty_bytes as u64 / ITEM_BYTES).min(MOST_ITEMS),
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

    pub(crate) fn all(&self) -> Vec<Arc<LiveInode>> {
        self.inodes.lock().values().cloned().collect()
    }

    /// Drops all queued items. This table and inodes refer to each other.
    pub(crate) fn clear(&self) {
        let inodes = std::mem::take(&mut *self.inodes.lock());
        for live in inodes.values() {
            live.delayed.clear();
        }
    }

    /// Drops the queued items of a subvolume of which nothing is open.
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
