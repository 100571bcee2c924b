//! All trees of a file system that can change, and the generation that they change in.
//!
//! # Invariants
//! - A block is changed in place only if it was born in the running generation, was not written
//!   since, and no snapshot of its tree was taken since; otherwise it is copied.
//! - Every block that is not on a device is in `live`; every other is found through the cache.
//! - `durable` generations have no live block that a committed tree could need: their blocks entered
//!   the cache before they left `live`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_format::node::{BACKREF_REV_MIXED, BACKREF_REV_SHIFT, Header};
use larder_format::{Key, Logical, Uuid};
use parking_lot::RwLock;
use zerocopy::{FromZeros, IntoBytes};

use super::block::{LiveBlock, LiveBlocks};
use super::error::ChangeError;
use super::space::{BlockRequest, BlockSpace};
use super::tree::LiveTree;
use super::write_out::WriteSet;
use crate::block::Block;
use crate::cache::BlockCache;
use crate::expected::Expected;
use crate::lock::{LockContext, Waiting};
use crate::root::TreeRoot;
use crate::stats::{ChangeCounters, ChangeStats};

/// How descents take their locks: what the ablations switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockPolicy {
    /// Whether an insert releases everything above the leaf before it searches the leaf.
    pub early_release: bool,
    /// The highest level that an insert write-locks at first: 0 is the leaf alone. It begins again
    /// with more where it turns out to need more.
    pub first_write_level: u8,
    /// Whether threads remember nodes above leaves, and pass by what is above them.
    pub fingers: bool,
    /// How threads wait for locks.
    pub waiting: Waiting,
}

impl Default for LockPolicy {
    fn default() -> Self {
        Self {
            early_release: true,
            first_write_level: 0,
            fingers: true,
            waiting: Waiting::Adaptive,
        }
    }
}

/// What is the same in every tree block of a file system.
#[derive(Clone, Copy, Debug)]
pub struct BlockIdentity {
    /// The metadata uuid.
    pub fsid: Uuid,
    /// Uuid of the chunk tree.
    pub chunk_tree_uuid: Uuid,
}

/// The trees of a file system that can change.
pub struct Forest {
    shared: Arc<Shared>,
    trees: RwLock<HashMap<u64, Arc<LiveTree>>>,
}

/// What a forest's trees have in common.
pub(super) struct Shared {
    pub(super) cache: Arc<BlockCache>,
    pub(super) space: Arc<dyn BlockSpace>,
    pub(super) identity: BlockIdentity,
    pub(super) policy: LockPolicy,
    pub(super) live: LiveBlocks,
    pub(super) counters: ChangeCounters,
    pub(super) locks: LockContext,
    running: AtomicU64,
    durable: AtomicU64,
}

impl Forest {
    /// A forest without trees whose running transaction is `generation`; all before it is on disk.
    pub fn new(
        cache: Arc<BlockCache>,
        space: Arc<dyn BlockSpace>,
        identity: BlockIdentity,
        policy: LockPolicy,
        generation: u64,
    ) -> Self {
        let live = LiveBlocks::new(cache.nodesize());
        let shared = Shared {
            cache,
            space,
            identity,
            policy,
            live,
            counters: ChangeCounters::default(),
            locks: LockContext { waiting: policy.waiting, ..LockContext::default() },
            running: AtomicU64::new(generation),
            durable: AtomicU64::new(generation.saturating_sub(1)),
        };
        Self { shared: Arc::new(shared), trees: RwLock::default() }
    }

    /// The running transaction.
    pub fn generation(&self) -> u64 {
        self.shared.running()
    }

    /// The cache that blocks go through.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.shared.cache
    }

    /// The tree of this id.
    pub fn tree(&self, id: u64) -> Option<Arc<LiveTree>> {
        self.trees.read().get(&id).cloned()
    }

    /// All trees, in order of their ids.
    pub fn trees(&self) -> Vec<Arc<LiveTree>> {
        let mut trees: Vec<_> = self.trees.read().values().cloned().collect();
        trees.sort_unstable_by_key(|tree| tree.id());
        trees
    }

    /// The tree of this id, entered with this root unless it is there already. `last_snapshot` is
    /// the generation of the last snapshot taken of it.
    pub fn open_tree(&self, root: TreeRoot, last_snapshot: u64) -> Arc<LiveTree> {
        let new = || Arc::new(LiveTree::new(self.shared.clone(), root, last_snapshot));
        self.trees.write().entry(root.tree).or_insert_with(new).clone()
    }

    /// A new and empty tree, listed under `id` in place of any other.
    pub fn create_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let tree = self.new_tree(id)?;
        self.trees.write().insert(id, tree.clone());
        Ok(tree)
    }

    /// A new and empty tree that is in no forest's list, to be written with
    /// [`write_unlisted`](Self::write_unlisted). All of a forest's that are in use share one id.
    pub fn create_unlisted_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        self.shared.live.note_tree(id);
        self.new_tree(id)
    }

    fn new_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let request = BlockRequest { tree: id, level: 0, first_key: Key::MIN, near: None };
        let block = self.shared.new_block(&request)?;
        Ok(Arc::new(LiveTree::new(self.shared.clone(), block.root(), 0)))
    }

    /// A new tree `id` that has all that `source` has, listed under its id. Only the root block is
    /// copied; from now on both trees copy what they change.
    pub fn snapshot_tree(&self, source: &LiveTree, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let tree = Arc::new(source.snapshot(id)?);
        self.trees.write().insert(id, tree.clone());
        Ok(tree)
    }

    /// Takes a tree from the list. Its blocks stay as they are.
    pub fn forget_tree(&self, id: u64) -> Option<Arc<LiveTree>> {
        self.trees.write().remove(&id)
    }

    /// Ends the running generation and begins the next: from now on everything is copied before it
    /// changes. Returns what is to be written for the ended one.
    ///
    /// The caller sees to it that nothing is being changed meanwhile, and that the set of the
    /// generation before has been finished.
    pub fn freeze(&self) -> WriteSet {
        let ended = self.shared.running.fetch_add(1, Ordering::AcqRel);
        // What they remember is of no use any more, and would stay in memory.
        self.trees.read().values().for_each(|tree| tree.fingers.clear());
        self.shared.live.forget_noted();
        WriteSet::of_generation(self.shared.clone(), ended)
    }

    /// The blocks of unlisted trees that came since they were last asked for, to be written while the
    /// transaction runs, as log trees are. Changing them afterwards copies them. The caller sees to it that
    /// nothing of these trees is being changed until the set has been sealed, and finishes it or gives the
    /// trees up.
    pub fn write_unlisted(&self) -> WriteSet {
        WriteSet::of_unlisted(self.shared.clone())
    }

    /// What has happened so far.
    pub fn stats(&self) -> ChangeStats {
        let finger_hits = self.trees.read().values().map(|tree| tree.fingers.hits()).sum();
        let shared = &self.shared;
        let locks = shared.locks.counters.snapshot();
        shared.counters.snapshot(locks, shared.live.len() as u64, finger_hits)
    }
}

impl fmt::Debug for Forest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forest")
            .field("generation", &self.generation())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A block that is in memory.
pub(super) enum InMemory {
    /// On a device too: it never changes, so that it needs no lock.
    Clean(Block),
    /// Only here, behind its lock.
    Live(LiveBlock),
}

impl Shared {
    pub(super) fn running(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    pub(super) fn nodesize(&self) -> usize {
        self.cache.nodesize()
    }

    /// All generations up to this one are on disk.
    pub(super) fn set_durable(&self, generation: u64) {
        self.durable.store(generation, Ordering::Release);
    }

    /// The block that a pointer leads to, if it is in memory.
    pub(super) fn in_memory(&self, expected: &Expected) -> Option<InMemory> {
        if expected.generation > self.durable.load(Ordering::Acquire)
            && let Some(live) = self.live.get(expected.logical)
            && live.generation == expected.generation
        {
            return Some(InMemory::Live(live));
        }
        self.cache.get(expected).map(InMemory::Clean)
    }

    /// A new and empty block.
    pub(super) fn new_block(&self, request: &BlockRequest) -> Result<NewBlock, ChangeError> {
        let logical = self.allocate(request)?;
        let mut header = Header::new_zeroed();
        header.fsid = *self.identity.fsid.as_bytes();
        header.chunk_tree_uuid = *self.identity.chunk_tree_uuid.as_bytes();
        header.bytenr = logical.0.into();
        header.flags = (BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into();
        header.generation = self.running().into();
        header.owner = request.tree.into();
        header.level = request.level;
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, self.nodesize()).collect();
        let unshared = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        unshared[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        Ok(self.enter(request, Block::new(bytes)))
    }

    /// Makes a block live.
    pub(super) fn enter(&self, request: &BlockRequest, block: Block) -> NewBlock {
        let live = LiveBlock::new(request.tree, block);
        self.live.insert(live.clone());
        NewBlock { live, first_key: request.first_key }
    }

    pub(super) fn allocate(&self, request: &BlockRequest) -> Result<Logical, ChangeError> {
        let tree = request.tree;
        self.space.allocate(request).map_err(|error| ChangeError::Space { tree, error })
    }

    /// Gives up a block that was born in the running generation and is referred to no more.
    pub(super) fn free(&self, tree: u64, block: &Block) {
        self.live.remove(block.logical(), block.generation());
        self.space.freed(tree, block);
    }
}

/// A block that no pointer leads to yet.
pub(super) struct NewBlock {
    pub(super) live: LiveBlock,
    pub(super) first_key: Key,
}

impl NewBlock {
    /// A tree that begins here.
    pub(super) fn root(&self) -> TreeRoot {
        let LiveBlock { tree, logical, level, generation, .. } = self.live;
        TreeRoot { tree, logical, level, generation }
    }
}
