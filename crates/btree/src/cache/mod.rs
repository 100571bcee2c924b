//! The cache of tree blocks that all threads and trees of one file system share.
//!
//! # Invariants
//! - A block enters after it passed the checks of its parent. A hit is checked against *this*
//!   parent: two pointers that disagree about a block cannot both have it.
//! - Threads that miss the same block at once cause one read. One thread reads, and the others
//!   wait for it without a lock.
//! - Eviction drops only the cache's own handle: a caller that has a [`Block`] keeps it.

mod shard;
mod spread;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use larder_format::Logical;

use self::shard::{Lookup, Shard};
pub(crate) use self::spread::SpreadAddresses;
use crate::block::Block;
use crate::error::TreeError;
use crate::expected::Expected;
use crate::stats::{Counters, Stats};
use crate::store::BlockStore;

/// Shards remove the contention of lookups on one lock word. More shards than this would gain
/// nothing, since the root block has only one shard.
const MOST_SHARDS: usize = 64;
/// Below this many blocks for each shard, uneven spreading would waste the limit.
const LEAST_BLOCKS_PER_SHARD: usize = 32;

/// A bounded, sharded cache of tree blocks over a [`BlockStore`].
pub struct BlockCache {
    store: Arc<dyn BlockStore>,
    shards: Box<[Shard]>,
    /// A random odd factor, so that no image can choose addresses that collide.
    spread: u64,
    pub(crate) counters: Counters,
}

/// A block, and whether it was in memory already.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The block.
    pub block: Block,
    /// Whether this call read it from the store.
    pub was_read: bool,
}

impl BlockCache {
    /// A cache over `store` of at most `limit_bytes`, but of at least 64 blocks.
    pub fn new(store: Arc<dyn BlockStore>, limit_bytes: usize) -> Self {
        let limit_blocks = (limit_bytes / store.nodesize()).max(2 * LEAST_BLOCKS_PER_SHARD);
        let shard_count = (limit_blocks / LEAST_BLOCKS_PER_SHARD).min(MOST_SHARDS);
        let shard_count = 1 << shard_count.ilog2();
        let shards = (0..shard_count).map(|_| Shard::new(limit_blocks / shard_count)).collect();
        let spread = RandomState::new().hash_one(limit_bytes) | 1;
        Self { store, shards, spread, counters: Counters::default() }
    }

    /// Length of every tree block in bytes.
    pub fn nodesize(&self) -> usize {
        self.store.nodesize()
    }

    /// The store underneath.
    pub fn store(&self) -> &dyn BlockStore {
        &*self.store
    }

    /// The block that a pointer says is there, from memory or from the store.
    pub fn read(&self, expected: &Expected) -> Result<Fetched, TreeError> {
        let shard = self.shard(expected.logical);
        loop {
            match shard.lookup(expected.logical) {
                Lookup::Present(block) if expected.check(block.node()).is_ok() => {
                    return Ok(Fetched { block, was_read: false });
                }
                // The cache has a block that another pointer expects, or one from before the
                // address was used anew. Only the store can tell.
                Lookup::Present(_) => {
                    let block = self.read_from_store(expected)?;
                    shard.insert(expected.logical, block.clone());
                    return Ok(Fetched { block, was_read: true });
                }
                Lookup::PendingRead(read) => {
                    self.counters.read_waits.add(1);
                    read.wait();
                }
                Lookup::Absent(claim) => {
                    let block = self.read_from_store(expected)?;
                    claim.finish(block.clone());
                    return Ok(Fetched { block, was_read: true });
                }
            }
        }
    }

    /// The block that a pointer says is there, if it is in memory.
    pub fn get(&self, expected: &Expected) -> Option<Block> {
        let block = self.shard(expected.logical).get(expected.logical)?;
        expected.check(block.node()).is_ok().then_some(block)
    }

    /// Adds a block that a commit has just written.
    pub(crate) fn insert(&self, block: Block) {
        let logical = block.logical();
        self.shard(logical).insert(logical, block);
    }

    /// Forgets a block, if the cache still has this one.
    pub(crate) fn forget(&self, block: &Block) {
        self.shard(block.logical()).forget(block);
    }

    /// Whether the block at this address is in memory, or a thread is reading it. Does not count
    /// as a use.
    pub fn contains(&self, logical: Logical) -> bool {
        self.shard(logical).contains(logical)
    }

    /// The counts so far.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            read_waits: self.counters.read_waits.get(),
            readahead_requests: self.counters.readahead_requests.get(),
            readahead_blocks: self.counters.readahead_blocks.get(),
            readahead_used: self.counters.readahead_used.get(),
            ..Stats::default()
        };
        for shard in &self.shards {
            shard.add_to(&mut stats, self.nodesize());
        }
        stats
    }

    fn read_from_store(&self, expected: &Expected) -> Result<Block, TreeError> {
        Block::read_from(&*self.store, expected)
    }

    fn shard(&self, logical: Logical) -> &Shard {
        let mixed = logical.0.wrapping_mul(self.spread) >> 32;
        &self.shards[mixed as usize & (self.shards.len() - 1)]
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
