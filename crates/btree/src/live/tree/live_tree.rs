//! A tree that changes.

use std::fmt;
use std::sync::Arc;

use larder_format::Logical;

use crate::live::error::ChangeError;
use crate::live::state::forest::ForestState;
use crate::live::state::tree::TreeState;
use crate::root::TreeRoot;
use crate::tree::Tree;

/// A tree that many threads read and change at once. Every function takes and releases the locks
/// that it needs. No function returns with a lock held.
pub struct LiveTree {
    pub(crate) state: TreeState,
}

impl LiveTree {
    pub(crate) fn new(forest: Arc<ForestState>, root: TreeRoot, last_snapshot: u64) -> Self {
        Self { state: TreeState::new(forest, root, last_snapshot) }
    }

    /// The tree's id, which is the owner of its new blocks.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// Where the tree begins now.
    pub fn root(&self) -> TreeRoot {
        *self.state.read_root()
    }

    /// The generation of the last snapshot: other trees may share blocks up to it.
    pub fn last_snapshot(&self) -> u64 {
        self.state.last_snapshot()
    }

    /// The tree as it is now, for readers without locks. It finds no block that is only in memory,
    /// so that it is of use only once everything is written.
    pub fn committed(&self) -> Tree {
        Tree::new(self.state.forest.cache.clone(), self.root())
    }

    /// Forgets a block of the running transaction, of this or any tree, that nothing refers to any
    /// more, so that no commit writes it.
    ///
    /// A tree does this itself for the blocks that it reports as freed. Callers do it for blocks
    /// whose last reference goes in another way: when they delete a tree, or when all trees that
    /// shared a block have copied it. They do it before the address may be used again.
    pub fn forget_block(&self, logical: Logical) {
        let forest = &self.state.forest;
        forest.live.remove(logical, forest.running());
    }

    /// How many blocks the tree has more, or less, than at the last call. Blocks that it shares
    /// with other trees count, copies do not.
    pub fn take_growth(&self) -> i64 {
        self.state.take_growth()
    }

    /// A tree `id` whose root block is a copy of this one's.
    pub(crate) fn snapshot(&self, id: u64) -> Result<Self, ChangeError> {
        Ok(Self { state: self.state.snapshot(id)? })
    }
}

impl fmt::Debug for LiveTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTree")
            .field("id", &self.id())
            .field("last_snapshot", &self.last_snapshot())
            .finish_non_exhaustive()
    }
}
