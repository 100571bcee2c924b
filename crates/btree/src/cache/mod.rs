//! The cache of tree blocks that all threads and trees of one file system share.
//!
//! # Invariants
//! - A block enters verified against what its parent says, and a hit is checked against what *this*
//!   parent says: two pointers that disagree about a block cannot both have it.
//! - Threads that miss the same block at once cause one read; the others wait for it, holding
//!   nothing but that wait.
//! - Evicting drops the cache's handle only: whoever holds a [`Block`] keeps it.

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

/// Sharding removes the contention of lookups on one lock word; more shards than this gain nothing
/// that the root block's own shard would not lose again.
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
    /// Whether it had to be read from the store.
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
                // Another pointer's idea of this address, or what was there before the address was
                // used anew: only the store can tell.
                Lookup::Present(_) => {
                    let block = self.read_from_store(expected)?;
                    shard.insert(expected.logical, block.clone());
                    return Ok(Fetched { block, was_read: true });
                }
                Lookup::Reading(reading) => {
                    self.counters.read_waits.add(1);
                    reading.wait();
                }
                Lookup::Absent(turn) => {
                    let block = self.read_from_store(expected)?;
                    turn.finish(block.clone());
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

    /// Takes in a block that was written just now.
    pub(crate) fn insert(&self, block: Block) {
        let logical = block.logical();
        self.shard(logical).insert(logical, block);
    }

    /// Forgets a block, if it is still this one.
    pub(crate) fn forget(&self, block: &Block) {
        self.shard(block.logical()).forget(block);
    }

    /// Whether the address is in memory or on its way there. Counts as no use of it.
    pub fn contains(&self, logical: Logical) -> bool {
        self.shard(logical).contains(logical)
    }

    /// What has happened so far.
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
