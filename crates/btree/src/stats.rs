//! Counters, cheap enough to stay on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the trees of one file system have done since it was opened.
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
    /// Of these, blocks that the cursor which asked came to visit.
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
