//! The state of one tree that changes: its root pointer, and which blocks are its own.
//!
//! # Invariants
//! - A block is changed in place only if it was born in the running generation, was not written
//!   since, and no snapshot of its tree was taken since. Every other block is copied first.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use larder_format::node::{MAX_LEVELS, leaf_data_size};
use larder_format::{Key, Logical};

use super::block::{LiveBlock, is_written};
use super::finger::Fingers;
use super::forest::{ForestState, InMemory, NewBlock};
use crate::block::Block;
use crate::expected::Expected;
use crate::live::bytes::leaf::weight;
use crate::live::error::ChangeError;
use crate::live::space::BlockRequest;
use crate::lock::{LockPlace, ReadGuard, TreeLock, WriteGuard};
use crate::root::TreeRoot;

/// The level of root pointers in the lock order: above all blocks.
pub(crate) const ROOT_POINTER_LEVEL: u8 = MAX_LEVELS as u8;

/// The state that all operations on one tree share.
pub(crate) struct TreeState {
    pub(crate) forest: Arc<ForestState>,
    pub(crate) id: u64,
    pub(crate) fingers: Fingers,
    root: TreeLock<TreeRoot>,
    last_snapshot: AtomicU64,
    /// How many blocks the tree has more than at the last question.
    growth: AtomicI64,
}

impl TreeState {
    pub(crate) fn new(forest: Arc<ForestState>, root: TreeRoot, last_snapshot: u64) -> Self {
        Self {
            forest,
            id: root.tree,
            fingers: Fingers::default(),
            root: TreeLock::new(root),
            last_snapshot: AtomicU64::new(last_snapshot),
            growth: AtomicI64::new(0),
        }
    }

    /// The generation of the last snapshot.
    pub(crate) fn last_snapshot(&self) -> u64 {
        self.last_snapshot.load(Ordering::Acquire)
    }

    /// Whether a block of this generation is this tree's own and of the running transaction.
    pub(crate) fn is_own(&self, generation: u64) -> bool {
        generation == self.forest.running() && generation > self.last_snapshot()
    }

    /// Whether a thread that has the block's write lock may change it in place.
    pub(crate) fn may_change(&self, block: &Block) -> bool {
        self.is_own(block.generation()) && !is_written(block)
    }

    /// Fails if an item of this length does not fit an empty leaf.
    pub(crate) fn check_len(&self, key: Key, len_bytes: usize) -> Result<(), ChangeError> {
        if weight(len_bytes) > leaf_data_size(self.forest.nodesize()) {
            return Err(ChangeError::TooLarge { tree: self.id, key, len_bytes });
        }
        Ok(())
    }

    fn root_place(&self) -> LockPlace {
        LockPlace { tree: self.id, level: ROOT_POINTER_LEVEL, key: Key::MIN }
    }

    #[track_caller]
    pub(crate) fn read_root(&self) -> ReadGuard<'_, TreeRoot> {
        self.root.read(self.root_place(), &self.forest.locks)
    }

    #[track_caller]
    pub(crate) fn write_root(&self) -> WriteGuard<'_, TreeRoot> {
        self.root.write(self.root_place(), &self.forest.locks)
    }

    /// Makes another block the root.
    pub(crate) fn set_root(&self, guard: &mut WriteGuard<'_, TreeRoot>, root: TreeRoot) {
        **guard = root;
        self.forest.space.root_changed(root);
    }

    /// Waits for the right to read a block that a pointer with this key leads to.
    #[track_caller]
    pub(crate) fn read_block(&self, live: &LiveBlock, key: Key) -> ReadGuard<'_, Block> {
        live.read(self.id, key, &self.forest.locks)
    }

    /// Waits for the right to change a block that a pointer with this key leads to.
    #[track_caller]
    pub(crate) fn write_block(&self, live: &LiveBlock, key: Key) -> WriteGuard<'_, Block> {
        live.write(self.id, key, &self.forest.locks)
    }

    /// The right to change a block that a pointer with this key leads to, if the lock is free.
    #[track_caller]
    pub(crate) fn try_write_block(
        &self,
        live: &LiveBlock,
        key: Key,
    ) -> Option<WriteGuard<'_, Block>> {
        live.try_write(self.id, key, &self.forest.locks)
    }

    /// A new and empty block of this tree.
    pub(crate) fn new_block(
        &self,
        level: u8,
        first_key: Key,
        near: Logical,
    ) -> Result<WriteGuard<'_, Block>, ChangeError> {
        let request = BlockRequest { tree: self.id, level, first_key, near: Some(near) };
        let block = self.forest.new_block(&request)?;
        self.growth.fetch_add(1, Ordering::Relaxed);
        Ok(self.lock_new(&block))
    }

    /// Gives up a block that was born in the running generation and that nothing in this tree
    /// refers to any more.
    pub(crate) fn free(&self, block: &Block) {
        self.growth.fetch_sub(1, Ordering::Relaxed);
        self.forest.free(self.id, block);
    }

    /// How many blocks the tree has more, or less, than at the last call.
    pub(crate) fn take_growth(&self) -> i64 {
        self.growth.swap(0, Ordering::Relaxed)
    }

    fn lock_new(&self, block: &NewBlock) -> WriteGuard<'_, Block> {
        self.try_write_block(&block.live, block.first_key).expect("no pointer leads to a new block")
    }

    /// A copy of `old` in the running generation. The caller makes a pointer lead to it.
    ///
    /// The cache forgets a leaf that is replaced. A snapshot may still have the leaf, but readers
    /// rarely look at both. The copy takes the leaf's memory over if no other handle is left.
    pub(crate) fn copy(&self, old: Block) -> Result<WriteGuard<'_, Block>, ChangeError> {
        if old.level() == 0 {
            self.forest.cache.forget(&old);
        }
        let new = self.forest.copy(self.id, old, self.last_snapshot(), true)?;
        self.forest.counters.copies.add(1);
        Ok(self.lock_new(&new))
    }

    /// The state of a tree `id` whose root block is a copy of this one's.
    pub(crate) fn snapshot(&self, id: u64) -> Result<Self, ChangeError> {
        let root = self.read_root();
        let expected = Expected::from(*root);
        let old = match self.forest.in_memory(&expected) {
            Some(InMemory::Live(live)) => self.read_block(&live, Key::MIN).clone(),
            Some(InMemory::Clean(block)) => block,
            None => {
                // The thread holds no lock while it reads the root block, and then looks again.
                drop(root);
                self.forest.cache.read(&expected)?;
                return self.snapshot(id);
            }
        };
        // From now on both trees share what the old root block refers to: no thread may change a
        // block of this generation in place any more.
        let generation = self.forest.running();
        let new = self.forest.copy(id, old, self.last_snapshot(), false)?;
        self.last_snapshot.store(generation, Ordering::Release);
        Ok(Self::new(self.forest.clone(), new.root(), generation))
    }
}
