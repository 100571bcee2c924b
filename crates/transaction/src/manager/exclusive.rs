//! The right to change trees while no other thread does.

use std::ops::Range;
use std::sync::Arc;

use larder_btree::{LiveTree, TreeView};
use larder_format::item::RootItem;

use super::TransactionManager;
use super::abort::AbortOnUnwind;
use super::join_gate::Quiesced;
use super::trees::NewSnapshot;
use crate::error::Result;
use crate::extent::{Backrefs, ReferringTree};

/// The right to change trees while no other thread does: the join gate is quiesced as long as this
/// lives.
#[derive(Debug)]
pub struct Exclusive<'m> {
    manager: &'m TransactionManager,
    _unwinding: AbortOnUnwind<'m>,
    quiesced: Quiesced<'m>,
}

impl<'m> Exclusive<'m> {
    /// Waits until every thread has ended its handle.
    pub(super) fn new(manager: &'m TransactionManager) -> Self {
        let quiesced = manager.gate.quiesce();
        Self { manager, _unwinding: AbortOnUnwind(&manager.abort), quiesced }
    }

    /// The manager whose join gate is quiesced.
    pub fn manager(&self) -> &'m TransactionManager {
        self.manager
    }

    /// Changes the root item of a tree that is open; the next commit writes it. Returns the result
    /// of `change`, or `None` if the tree is not open.
    pub fn change_root_item<T>(
        &self,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.manager.trees.change_root_item(tree, change)
    }

    /// Takes a snapshot: a copy of a root block, and one more reference to each of its children.
    /// Its root item starts as a copy of the source's; `configure` sets UUIDs, flags and the like.
    /// The caller inserts names.
    ///
    /// Until this transaction ends, each change of the source copies blocks anew: take snapshots in
    /// [`TransactionHook::in_commit`](super::TransactionHook::in_commit), or commit right after.
    ///
    /// The snapshot must not be changed before this transaction is committed: a commit that finds
    /// it changed fails.
    pub fn snapshot(
        &self,
        snapshot: NewSnapshot,
        configure: impl FnOnce(&mut RootItem),
    ) -> Result<Arc<LiveTree>> {
        self.manager.trees.snapshot(self, snapshot, configure)
    }

    /// Tells the hook that content [moved](super::TransactionHook::moved) away from these ranges.
    pub fn moved(&self, ranges: &[Range<u64>]) {
        if let Some(hook) = self.manager.hook.get() {
            hook.moved(ranges);
        }
    }

    /// What refers to extents now.
    pub fn backrefs(&self) -> Backrefs<'_> {
        let Self { manager, .. } = *self;
        let find_tree = |id| {
            let tree = manager.trees.open(id)?;
            let found = tree.zip(manager.trees.root_item(id));
            Ok(found.map(|(tree, (_, item))| ReferringTree::new(&item, TreeView::Live(tree))))
        };
        Backrefs::running(
            TreeView::Live(manager.trees.extent().clone()),
            manager.volume.nodesize(),
            Box::new(find_tree),
            &manager.tree_space.refs,
            manager.generation(),
        )
    }

    /// Notes that the commit in progress has taken all changes: the next join makes another due.
    pub(super) fn forget_joins(&self) {
        self.quiesced.forget_joins();
    }
}
