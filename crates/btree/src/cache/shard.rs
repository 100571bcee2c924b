//! One part of the cache: a map under a reader-writer lock, evicting by the clock algorithm.
//!
//! # Invariants
//! - Every present block is in the ring once under its current ticket; a ring entry with another
//!   ticket is stale and skipped.
//! - Every `PendingRead` entry belongs to one live [`ReadClaim`], whose drop removes the entry and
//!   wakes all waiting threads.
//! - A new block has no second chance until a thread uses it again, so that one long walk does not
//!   evict blocks in frequent use. Internal nodes earn more chances than leaves.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use larder_format::Logical;
use larder_locks::RankedRwLock;
use larder_locks::rank::BLOCK_CACHE;
use parking_lot::{Condvar, Mutex};

use super::spread::SpreadAddresses;
use crate::block::Block;
use crate::stats::{Counter, Stats};

/// Each shard has cache lines of its own: counting hits in one must not slow lookups in its
/// neighbour.
#[repr(align(128))]
pub(super) struct Shard {
    limit_blocks: usize,
    state: RankedRwLock<State, BLOCK_CACHE>,
    hits: Counter,
    misses: Counter,
    evictions: Counter,
}

struct State {
    entries: HashMap<Logical, Entry, SpreadAddresses>,
    ring: VecDeque<(Logical, u64)>,
    present: usize,
    next_ticket: u64,
}

enum Entry {
    PendingRead(Arc<PendingRead>),
    Present { block: Block, chances: AtomicU8, ticket: u64 },
}

/// The state of an address.
pub(super) enum Lookup<'a> {
    Present(Block),
    PendingRead(Arc<PendingRead>),
    Absent(ReadClaim<'a>),
}

/// A read by another thread, to wait for.
#[derive(Default)]
pub(super) struct PendingRead {
    done: Mutex<bool>,
    wake: Condvar,
}

impl PendingRead {
    /// Returns when the read has ended, with or without a block.
    pub(super) fn wait(&self) {
        let mut done = self.done.lock();
        while !*done {
            self.wake.wait(&mut done);
        }
    }

    fn end(&self) {
        *self.done.lock() = true;
        self.wake.notify_all();
    }
}

/// The right and the duty of one thread to read a block.
pub(super) struct ReadClaim<'a> {
    shard: &'a Shard,
    logical: Logical,
    reading: Arc<PendingRead>,
}

impl ReadClaim<'_> {
    /// Puts the block into the cache.
    pub(super) fn finish(self, block: Block) {
        self.shard.insert(self.logical, block);
    }
}

impl Drop for ReadClaim<'_> {
    fn drop(&mut self) {
        let mut state = self.shard.state.write();
        let mine =
            |entry: &Entry| matches!(entry, Entry::PendingRead(r) if Arc::ptr_eq(r, &self.reading));
        if state.entries.get(&self.logical).is_some_and(mine) {
            state.entries.remove(&self.logical);
        }
        drop(state);
        self.reading.end();
    }
}

impl Shard {
    pub(super) fn new(limit_blocks: usize) -> Self {
        let state = State {
            entries: HashMap::with_hasher(SpreadAddresses::new()),
            ring: VecDeque::new(),
            present: 0,
            next_ticket: 0,
        };
        Self {
            limit_blocks,
            state: RankedRwLock::new(state),
            hits: Counter::default(),
            misses: Counter::default(),
            evictions: Counter::default(),
        }
    }

    /// The block at `logical`, or the read by another thread, or the right to read it.
    pub(super) fn lookup(&self, logical: Logical) -> Lookup<'_> {
        if let Some(found) = self.find(self.state.read().entries.get(&logical)) {
            return found;
        }
        let mut state = self.state.write();
        if let Some(found) = self.find(state.entries.get(&logical)) {
            return found;
        }
        let reading = Arc::new(PendingRead::default());
        state.entries.insert(logical, Entry::PendingRead(reading.clone()));
        self.misses.add(1);
        Lookup::Absent(ReadClaim { shard: self, logical, reading })
    }

    fn find(&self, entry: Option<&Entry>) -> Option<Lookup<'_>> {
        match entry? {
            Entry::PendingRead(reading) => Some(Lookup::PendingRead(reading.clone())),
            Entry::Present { block, chances, .. } => {
                let earned = 1 + block.level();
                if chances.load(Relaxed) != earned {
                    chances.store(earned, Relaxed);
                }
                self.hits.add(1);
                Some(Lookup::Present(block.clone()))
            }
        }
    }

    /// The block at `logical`, if it is present.
    pub(super) fn get(&self, logical: Logical) -> Option<Block> {
        match self.find(self.state.read().entries.get(&logical)) {
            Some(Lookup::Present(block)) => Some(block),
            _ => None,
        }
    }

    pub(super) fn contains(&self, logical: Logical) -> bool {
        self.state.read().entries.contains_key(&logical)
    }

    /// Puts `block` at `logical`, and evicts others where the limit asks for it.
    pub(super) fn insert(&self, logical: Logical, block: Block) {
        let mut state = self.state.write();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let entry = Entry::Present { block, chances: AtomicU8::new(0), ticket };
        if !matches!(state.entries.insert(logical, entry), Some(Entry::Present { .. })) {
            state.present += 1;
        }
        state.ring.push_back((logical, ticket));
        while state.present > self.limit_blocks {
            self.evictions.add(state.advance_hand());
        }
        state.compact_ring();
    }

    /// Forgets a block, if its address still has this one.
    pub(super) fn forget(&self, block: &Block) {
        let mut state = self.state.write();
        let is_there = |entry: &Entry| matches!(entry, Entry::Present { block: there, .. } if there.is_same(block));
        if state.entries.get(&block.logical()).is_some_and(is_there) {
            state.entries.remove(&block.logical());
            state.present -= 1;
            state.compact_ring();
        }
    }

    pub(super) fn add_to(&self, stats: &mut Stats, nodesize: usize) {
        stats.hits += self.hits.get();
        stats.misses += self.misses.get();
        stats.evictions += self.evictions.get();
        stats.cached_bytes += (self.state.read().present * nodesize) as u64;
    }
}

impl State {
    /// Takes a chance from the block under the hand, or evicts it. Returns how many it evicted.
    fn advance_hand(&mut self) -> u64 {
        let Some((logical, ticket)) = self.ring.pop_front() else { return 0 };
        let Some(Entry::Present { chances, ticket: current, .. }) = self.entries.get_mut(&logical)
        else {
            return 0;
        };
        if *current != ticket {
            return 0;
        }
        if *chances.get_mut() > 0 {
            *chances.get_mut() -= 1;
            self.ring.push_back((logical, ticket));
            return 0;
        }
        self.entries.remove(&logical);
        self.present -= 1;
        1
    }

    /// Drops stale ring entries when they are as many as the others.
    fn compact_ring(&mut self) {
        if self.ring.len() > 2 * self.present + 16 {
            let entries = &self.entries;
            self.ring.retain(|(logical, ticket)| {
                matches!(entries.get(logical), Some(Entry::Present { ticket: t, .. }) if t == ticket)
            });
        }
    }
}
