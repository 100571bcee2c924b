//! All trees of a file system that can change.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use larder_format::Key;
use parking_lot::RwLock;

use super::error::ChangeError;
use super::space::{BlockRequest, BlockSpace};
use super::state::forest::{BlockIdentity, ForestState};
use super::state::policy::LockPolicy;
use super::tree::live_tree::LiveTree;
use super::write_set::WriteSet;
use crate::cache::BlockCache;
use crate::root::TreeRoot;
use crate::stats::ChangeStats;

/// The trees of a file system that can change.
pub struct Forest {
    pub(super) state: Arc<ForestState>,
    trees: RwLock<HashMap<u64, Arc<LiveTree>>>,
}

impl Forest {
    /// A forest without trees, whose running transaction is `generation`. All before it is on
    /// disk.
    pub fn new(
        cache: Arc<BlockCache>,
        space: Arc<dyn BlockSpace>,
        identity: BlockIdentity,
        generation: u64,
    ) -> Self {
        Self::of(ForestState::new(cache, space, identity, LockPolicy::default(), generation))
    }

    /// As [`new`](Self::new), with another way to take locks, for benchmarks that measure its
    /// worth.
    #[cfg(feature = "ablation")]
    pub fn with_policy(
        cache: Arc<BlockCache>,
        space: Arc<dyn BlockSpace>,
        identity: BlockIdentity,
        generation: u64,
        policy: LockPolicy,
    ) -> Self {
        Self::of(ForestState::new(cache, space, identity, policy, generation))
    }

    fn of(state: ForestState) -> Self {
        Self { state: Arc::new(state), trees: RwLock::default() }
    }

    /// The running transaction.
    pub fn generation(&self) -> u64 {
        self.state.running()
    }

    /// The cache that blocks go through.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.state.cache
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

    /// The tree of this id, listed with this root unless the forest has it already.
    /// `last_snapshot` is the generation of the last snapshot of it.
    pub fn open_tree(&self, root: TreeRoot, last_snapshot: u64) -> Arc<LiveTree> {
        let new = || Arc::new(LiveTree::new(self.state.clone(), root, last_snapshot));
        self.trees.write().entry(root.tree).or_insert_with(new).clone()
    }

    /// A new and empty tree, listed under `id` in place of any other.
    pub fn create_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let tree = self.new_tree(id)?;
        self.trees.write().insert(id, tree.clone());
        Ok(tree)
    }

    /// A new and empty tree that the forest does not list, to be written with
    /// [`write_unlisted`](Self::write_unlisted). All unlisted trees that are in use share one id.
    pub fn create_unlisted_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        self.state.live.set_unlisted_tree(id);
        self.new_tree(id)
    }

    fn new_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let request = BlockRequest { tree: id, level: 0, first_key: Key::MIN, near: None };
        let block = self.state.new_block(&request)?;
        Ok(Arc::new(LiveTree::new(self.state.clone(), block.root(), 0)))
    }

    /// A new tree `id` with all items of `source`, listed under its id. Only the root block is
    /// copied at once. From now on both trees copy a block before they change it.
    pub fn snapshot_tree(&self, source: &LiveTree, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let tree = Arc::new(source.snapshot(id)?);
        self.trees.write().insert(id, tree.clone());
        Ok(tree)
    }

    /// Takes a tree from the list. Its blocks stay as they are.
    pub fn forget_tree(&self, id: u64) -> Option<Arc<LiveTree>> {
        self.trees.write().remove(&id)
    }

    /// Ends the running generation and begins the next: from now on every thread copies a block
    /// before it changes it. Returns the blocks to write for the ended generation.
    ///
    /// The caller makes sure that no thread changes a tree meanwhile, and that the set of the
    /// generation before is finished.
    pub fn freeze(&self) -> WriteSet {
        let ended = self.state.end_generation();
        // Fingers of the ended generation are useless, and would keep blocks in memory.
        self.trees.read().values().for_each(|tree| tree.state.fingers.clear());
        self.state.live.clear_unlisted();
        WriteSet::of_generation(self.state.clone(), ended)
    }

    /// The blocks of unlisted trees that are new since the last call, to be written while the
    /// transaction runs, as blocks of log trees are. A later change copies them. The caller makes
    /// sure that no thread changes these trees until the set is sealed, and then finishes the set
    /// or gives the trees up.
    pub fn write_unlisted(&self) -> WriteSet {
        WriteSet::of_unlisted(self.state.clone())
    }

    /// The counts so far.
    pub fn stats(&self) -> ChangeStats {
        let finger_hits = self.trees.read().values().map(|tree| tree.state.fingers.hits()).sum();
        let state = &self.state;
        let locks = state.locks.counters.snapshot();
        state.counters.snapshot(locks, state.live.len() as u64, finger_hits)
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
