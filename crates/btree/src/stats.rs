//! Counters, cheap enough to stay on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts of cache and readahead since the file system was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks read from the store.
    pub misses: u64,
    /// Times a thread waited for a block that another thread was reading.
    pub read_waits: u64,
    /// Blocks dropped to stay within the limit.
    pub evictions: u64,
    /// Bytes of blocks in the cache now.
    pub cached_bytes: u64,
    /// Readahead requests to the store, each for adjacent blocks.
    pub readahead_requests: u64,
    /// Blocks in those requests.
    pub readahead_blocks: u64,
    /// Of these, blocks that the cursor then visited.
    pub readahead_used: u64,
}

/// The counters behind [`Stats`] that are not kept by a shard of the cache.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read_waits: Counter,
    pub(crate) readahead_requests: Counter,
    pub(crate) readahead_blocks: Counter,
    pub(crate) readahead_used: Counter,
}

/// A count that threads add to without ordering anything else.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How long threads waited for the locks of changing trees, and how long they held them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Acquisitions that had to wait.
    pub blocked: u64,
    /// Nanoseconds that they waited.
    pub wait_nanos: u64,
    /// Times that an internal node, or a root pointer, was write-locked.
    pub internal_write_locks: u64,
    /// Nanoseconds that threads held these, while all threads below may have to wait.
    pub internal_write_held_nanos: u64,
}

/// The counters behind [`LockStats`].
#[derive(Debug, Default)]
pub(crate) struct LockCounters {
    blocked: Counter,
    wait_nanos: Counter,
    internal_write_locks: Counter,
    internal_write_held_nanos: Counter,
}

impl LockCounters {
    pub(crate) fn waited(&self, time: Duration) {
        self.blocked.add(1);
        self.wait_nanos.add(time.as_nanos() as u64);
    }

    pub(crate) fn internal_node_held(&self, time: Duration) {
        self.internal_write_locks.add(1);
        self.internal_write_held_nanos.add(time.as_nanos() as u64);
    }

    pub(crate) fn snapshot(&self) -> LockStats {
        LockStats {
            blocked: self.blocked.get(),
            wait_nanos: self.wait_nanos.get(),
            internal_write_locks: self.internal_write_locks.get(),
            internal_write_held_nanos: self.internal_write_held_nanos.get(),
        }
    }
}

/// Counts of changes to the trees of one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeStats {
    /// Waiting and holding.
    pub locks: LockStats,
    /// Blocks copied before their first change in a transaction.
    pub copies: u64,
    /// Descents that began again because they needed more write locks.
    pub restarts: u64,
    /// Descents that began again because they had to read a block.
    pub read_restarts: u64,
    /// Searches that a finger led past everything above their leaf, in the trees that are listed.
    pub finger_hits: u64,
    /// Inserts that released everything above the leaf before searching it.
    pub early_releases: u64,
    /// Leaves split.
    pub leaf_splits: u64,
    /// Of these, those split in two places at once.
    pub double_splits: u64,
    /// Internal nodes split.
    pub node_splits: u64,
    /// Splits saved by moving items to a sibling.
    pub pushes: u64,
    /// Blocks merged into a sibling.
    pub merges: u64,
    /// Blocks that went away because they were empty.
    pub removals: u64,
    /// Blocks that were born in the running transaction or are being written.
    pub dirty_blocks: u64,
}

/// The counters behind [`ChangeStats`].
#[derive(Debug, Default)]
pub(crate) struct ChangeCounters {
    pub(crate) copies: Counter,
    pub(crate) restarts: Counter,
    pub(crate) read_restarts: Counter,
    pub(crate) early_releases: Counter,
    pub(crate) leaf_splits: Counter,
    pub(crate) double_splits: Counter,
    pub(crate) node_splits: Counter,
    pub(crate) pushes: Counter,
    pub(crate) merges: Counter,
    pub(crate) removals: Counter,
}

impl ChangeCounters {
    pub(crate) fn snapshot(
        &self,
        locks: LockStats,
        dirty_blocks: u64,
        finger_hits: u64,
    ) -> ChangeStats {
        ChangeStats {
            locks,
            copies: self.copies.get(),
            restarts: self.restarts.get(),
            read_restarts: self.read_restarts.get(),
            finger_hits,
            early_releases: self.early_releases.get(),
            leaf_splits: self.leaf_splits.get(),
            double_splits: self.double_splits.get(),
            node_splits: self.node_splits.get(),
            pushes: self.pushes.get(),
            merges: self.merges.get(),
            removals: self.removals.get(),
            dirty_blocks,
        }
    }
}
