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
    state: Arc<ForestState>,
    trees: RwLock<HashMap<u64, Arc<LiveTree>>>,
}

impl Forest {
    /// A forest without trees whose running transaction is `generation`; all before it is on disk.
    pub fn new(
        cache: Arc<BlockCache>,
        space: Arc<dyn BlockSpace>,
        identity: BlockIdentity,
        generation: u64,
    ) -> Self {
        Self::of(ForestState::new(cache, space, identity, LockPolicy::default(), generation))
    }

    /// As [`new`](Self::new), with another way to take locks, for benchmarks that measure what it is
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

    /// The tree of this id, entered with this root unless it is there already. `last_snapshot` is
    /// the generation of the last snapshot taken of it.
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

    /// A new and empty tree that is in no forest's list, to be written with
    /// [`write_unlisted`](Self::write_unlisted). All of a forest's that are in use share one id.
    pub fn create_unlisted_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        self.state.live.note_tree(id);
        self.new_tree(id)
    }

    fn new_tree(&self, id: u64) -> Result<Arc<LiveTree>, ChangeError> {
        let request = BlockRequest { tree: id, level: 0, first_key: Key::MIN, near: None };
        let block = self.state.new_block(&request)?;
        Ok(Arc::new(LiveTree::new(self.state.clone(), block.root(), 0)))
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
        let ended = self.state.end_generation();
        // What they remember is of no use any more, and would stay in memory.
        self.trees.read().values().for_each(|tree| tree.state.fingers.clear());
        self.state.live.forget_noted();
        WriteSet::of_generation(self.state.clone(), ended)
    }

    /// The blocks of unlisted trees that came since they were last asked for, to be written while the
    /// transaction runs, as log trees are. Changing them afterwards copies them. The caller sees to it that
    /// nothing of these trees is being changed until the set has been sealed, and finishes it or gives the
    /// trees up.
    pub fn write_unlisted(&self) -> WriteSet {
        WriteSet::of_unlisted(self.state.clone())
    }

    /// What has happened so far.
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
