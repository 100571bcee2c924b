//! The state that all trees of a forest share: generations, and blocks by address.
//!
//! # Invariants
//! - Every block that is not on a device is in `live`. The cache finds every other block.
//! - No committed tree needs a live block of a `durable` generation: such blocks enter the cache
//!   before they leave `live`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_format::node::{BACKREF_REV_MIXED, BACKREF_REV_SHIFT, Header};
use larder_format::{Key, Logical, Uuid};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::block::{LiveBlock, LiveBlocks};
use super::policy::LockPolicy;
use crate::block::Block;
use crate::cache::BlockCache;
use crate::expected::Expected;
use crate::live::error::ChangeError;
use crate::live::space::{BlockRequest, BlockSpace, Copied};
use crate::lock::LockContext;
use crate::root::TreeRoot;
use crate::stats::ChangeCounters;

/// The fields that are the same in every tree block of a file system.
#[derive(Clone, Copy, Debug)]
pub struct BlockIdentity {
    /// The metadata uuid.
    pub fsid: Uuid,
    /// Uuid of the chunk tree.
    pub chunk_tree_uuid: Uuid,
}

/// The state that the trees of a forest share.
pub(crate) struct ForestState {
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) space: Arc<dyn BlockSpace>,
    identity: BlockIdentity,
    pub(crate) policy: LockPolicy,
    pub(crate) live: LiveBlocks,
    pub(crate) counters: ChangeCounters,
    pub(crate) locks: LockContext,
    running: AtomicU64,
    durable: AtomicU64,
}

/// A block that is in memory.
pub(crate) enum InMemory {
    /// On a device too: it never changes, so that it needs no lock.
    Clean(Block),
    /// Only in memory, with a lock.
    Live(LiveBlock),
}

/// A block that no pointer leads to yet.
pub(crate) struct NewBlock {
    pub(crate) live: LiveBlock,
    pub(crate) first_key: Key,
}

impl ForestState {
    /// The state of a forest without trees, whose running transaction is `generation`.
    pub(crate) fn new(
        cache: Arc<BlockCache>,
        space: Arc<dyn BlockSpace>,
        identity: BlockIdentity,
        policy: LockPolicy,
        generation: u64,
    ) -> Self {
        let live = LiveBlocks::new(cache.nodesize());
        Self {
            cache,
            space,
            identity,
            policy,
            live,
            counters: ChangeCounters::default(),
            locks: policy.lock_context(),
            running: AtomicU64::new(generation),
            durable: AtomicU64::new(generation.saturating_sub(1)),
        }
    }

    /// The running transaction.
    pub(crate) fn running(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    pub(crate) fn nodesize(&self) -> usize {
        self.cache.nodesize()
    }

    /// Ends the running generation, begins the next, and returns the ended one.
    pub(crate) fn end_generation(&self) -> u64 {
        self.running.fetch_add(1, Ordering::AcqRel)
    }

    /// Says that all generations up to this one are on disk.
    pub(crate) fn set_durable(&self, generation: u64) {
        self.durable.store(generation, Ordering::Release);
    }

    /// The block that a pointer leads to, if it is in memory.
    pub(crate) fn in_memory(&self, expected: &Expected) -> Option<InMemory> {
        if expected.generation > self.durable.load(Ordering::Acquire)
            && let Some(live) = self.live.get(expected.logical)
            && live.generation == expected.generation
        {
            return Some(InMemory::Live(live));
        }
        self.cache.get(expected).map(InMemory::Clean)
    }

    /// A new and empty block.
    pub(crate) fn new_block(&self, request: &BlockRequest) -> Result<NewBlock, ChangeError> {
        let logical = self.allocate(request)?;
        let mut header = Header::new_zeroed();
        header.fsid = *self.identity.fsid.as_bytes();
        header.chunk_tree_uuid = *self.identity.chunk_tree_uuid.as_bytes();
        header.level = request.level;
        self.set_birth(&mut header, request.tree, logical);
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, self.nodesize()).collect();
        let unshared = Arc::get_mut(&mut bytes).expect("no other handle exists yet");
        unshared[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        Ok(self.enter(request, Block::new(bytes)))
    }

    /// A copy of a block for `tree`, which may share blocks of generations up to `last_snapshot`.
    /// `is_replaced` says whether the tree gives up the old block for the copy.
    pub(crate) fn copy(
        &self,
        tree: u64,
        mut block: Block,
        last_snapshot: u64,
        is_replaced: bool,
    ) -> Result<NewBlock, ChangeError> {
        let first_key = block.node().first_key().unwrap_or(Key::MIN);
        let near = Some(block.logical());
        let request = BlockRequest { tree, level: block.level(), first_key, near };
        let logical = self.allocate(&request)?;
        let old = *block.header();
        let (header, _) = Header::mut_from_prefix(block.bytes_mut()).expect("a block has a header");
        self.set_birth(header, tree, logical);
        let copied = Copied {
            tree,
            old: &old,
            new: &block,
            old_may_be_shared: !is_replaced || old.generation.get() <= last_snapshot,
            old_is_replaced: is_replaced,
        };
        if let Err(error) = self.space.copied(&copied) {
            self.space.freed(tree, &block);
            return Err(ChangeError::Space { tree, error });
        }
        Ok(self.enter(&request, block))
    }

    /// Fills in the fields of a header that say where, when and for which tree a block is born.
    fn set_birth(&self, header: &mut Header, tree: u64, logical: Logical) {
        header.bytenr = logical.0.into();
        header.flags = (BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into();
        header.generation = self.running().into();
        header.owner = tree.into();
    }

    /// Makes a block live.
    fn enter(&self, request: &BlockRequest, block: Block) -> NewBlock {
        let live = LiveBlock::new(request.tree, block);
        self.live.insert(live.clone());
        NewBlock { live, first_key: request.first_key }
    }

    fn allocate(&self, request: &BlockRequest) -> Result<Logical, ChangeError> {
        let tree = request.tree;
        self.space.allocate(request).map_err(|error| ChangeError::Space { tree, error })
    }

    /// Gives up a block that was born in the running generation and that nothing refers to any
    /// more.
    pub(crate) fn free(&self, tree: u64, block: &Block) {
        self.live.remove(block.logical(), block.generation());
        self.space.freed(tree, block);
    }
}

impl NewBlock {
    /// The root of a tree that begins here.
    pub(crate) fn root(&self) -> TreeRoot {
        let LiveBlock { tree, logical, level, generation, .. } = self.live;
        TreeRoot { tree, logical, level, generation }
    }
}
