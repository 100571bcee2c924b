//! Blocks of the running transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_format::node::HEADER_FLAG_WRITTEN;
use larder_format::{Key, Logical};
use parking_lot::{Mutex, RwLock};

use crate::block::Block;
use crate::cache::SpreadAddresses;
use crate::lock::{LockContext, LockPlace, ReadGuard, TreeLock, Version, WriteGuard};

/// A block that is not on any device yet, with its lock.
#[derive(Clone)]
pub(crate) struct LiveBlock {
    pub(crate) tree: u64,
    pub(crate) logical: Logical,
    pub(crate) level: u8,
    pub(crate) generation: u64,
    lock: TreeLock<Block>,
}

impl LiveBlock {
    /// `block`, which was made for `tree`.
    pub(crate) fn new(tree: u64, block: Block) -> Self {
        let (logical, level, generation) = (block.logical(), block.level(), block.generation());
        // Fingers remember only nodes right above leaves.
        let lock = if level == 1 { TreeLock::with_version(block) } else { TreeLock::new(block) };
        Self { tree, logical, level, generation, lock }
    }

    /// The version of the block's lock, if the block is right above the leaves.
    pub(crate) fn version(&self) -> Option<&Arc<Version>> {
        self.lock.version()
    }

    /// The place of the lock for a thread that reached the block through `tree`, under a pointer
    /// with this key. That is not always the tree that the block was made for: in the transaction
    /// of a snapshot, two trees lead to the block.
    fn place(&self, tree: u64, key: Key) -> LockPlace {
        LockPlace { tree, level: self.level, key }
    }

    #[track_caller]
    pub(crate) fn read<'c>(
        &self,
        tree: u64,
        key: Key,
        context: &'c LockContext,
    ) -> ReadGuard<'c, Block> {
        self.lock.read(self.place(tree, key), context)
    }

    #[track_caller]
    pub(crate) fn write<'c>(
        &self,
        tree: u64,
        key: Key,
        context: &'c LockContext,
    ) -> WriteGuard<'c, Block> {
        self.lock.write(self.place(tree, key), context)
    }

    #[track_caller]
    pub(crate) fn try_write<'c>(
        &self,
        tree: u64,
        key: Key,
        context: &'c LockContext,
    ) -> Option<WriteGuard<'c, Block>> {
        self.lock.try_write(self.place(tree, key), context)
    }
}

/// Whether a block has its final content: it is on a device, or on its way there.
pub(crate) fn is_written(block: &Block) -> bool {
    block.header().flags() & HEADER_FLAG_WRITTEN != 0
}

const SHARDS: usize = 64;

/// All live blocks by address.
///
/// A caller writes the trees that the forest does not list, as log trees, while their generation
/// runs. Their blocks are in a list of their own too, since a log has a few blocks among tens of
/// thousands.
pub(crate) struct LiveBlocks {
    /// Shards keep descents from contending for one lock word. The hasher spreads within a shard.
    shards: [Shard; SHARDS],
    nodesize_shift: u32,
    /// The id of all unlisted trees; 0 if there are none.
    unlisted_tree: AtomicU64,
    /// Their blocks that are not written yet, and some that are gone.
    unlisted: Mutex<Vec<LiveBlock>>,
}

/// A part of the blocks, on cache lines of its own.
#[repr(align(128))]
struct Shard(RwLock<HashMap<Logical, LiveBlock, SpreadAddresses>>);

impl LiveBlocks {
    pub(crate) fn new(nodesize: usize) -> Self {
        let shard = || Shard(RwLock::new(HashMap::with_hasher(SpreadAddresses::new())));
        Self {
            shards: std::array::from_fn(|_| shard()),
            nodesize_shift: nodesize.ilog2(),
            unlisted_tree: AtomicU64::new(0),
            unlisted: Mutex::default(),
        }
    }

    fn shard(&self, logical: Logical) -> &Shard {
        &self.shards[(logical.0 >> self.nodesize_shift) as usize % SHARDS]
    }

    pub(crate) fn get(&self, logical: Logical) -> Option<LiveBlock> {
        self.shard(logical).0.read().get(&logical).cloned()
    }

    /// From now on unlisted trees have this id.
    pub(crate) fn set_unlisted_tree(&self, tree: u64) {
        if self.unlisted_tree.swap(tree, Relaxed) != tree {
            self.clear_unlisted();
        }
    }

    /// Forgets which blocks unlisted trees have.
    pub(crate) fn clear_unlisted(&self) {
        self.unlisted.lock().clear();
    }

    /// Takes the blocks of unlisted trees, in order of address.
    pub(crate) fn take_unlisted(&self) -> Vec<LiveBlock> {
        let mut blocks = std::mem::take(&mut *self.unlisted.lock());
        blocks.retain(|block| self.has(block));
        blocks.sort_unstable_by_key(|block| block.logical);
        blocks
    }

    pub(crate) fn insert(&self, block: LiveBlock) {
        if block.tree == self.unlisted_tree.load(Relaxed) {
            self.unlisted.lock().push(block.clone());
        }
        self.shard(block.logical).0.write().insert(block.logical, block);
    }

    /// Removes the block at an address, if it is of this generation.
    pub(crate) fn remove(&self, logical: Logical, generation: u64) {
        let mut shard = self.shard(logical).0.write();
        if shard.get(&logical).is_some_and(|block| block.generation == generation) {
            shard.remove(&logical);
        }
    }

    /// Removes a block that was written, unless its address has another block by now.
    pub(crate) fn remove_written(&self, block: &LiveBlock) {
        let mut shard = self.shard(block.logical).0.write();
        if shard.get(&block.logical).is_some_and(|there| there.lock.is_same(&block.lock)) {
            shard.remove(&block.logical);
        }
    }

    /// Whether the address of this block still has this block.
    pub(crate) fn has(&self, block: &LiveBlock) -> bool {
        let shard = self.shard(block.logical).0.read();
        shard.get(&block.logical).is_some_and(|there| there.lock.is_same(&block.lock))
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.read().len()).sum()
    }

    /// The blocks that `picks` accepts, in order of address.
    pub(crate) fn collect(&self, picks: impl Fn(&LiveBlock) -> bool) -> Vec<LiveBlock> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            blocks.extend(shard.0.read().values().filter(|block| picks(block)).cloned());
        }
        blocks.sort_unstable_by_key(|block| block.logical);
        blocks
    }
}
