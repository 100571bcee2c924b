//! Snapshots: a copy of a root block, and one more reference to each of its children.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::item::RootItem;
use larder_format::{ItemType, Key};

use super::Exclusive;
use super::roots::beginning_of;
use crate::error::{Error, Result};

/// What a snapshot is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewSnapshot {
    /// The subvolume that it is of.
    pub source: u64,
    /// Its own id, of which there is no tree yet.
    pub id: u64,
}

impl Exclusive<'_> {
    /// Takes a snapshot. Its root item starts as a copy of the source's; `configure` sets what is its
    /// own, such as uuids and flags. Names are the caller's business.
    ///
    /// Until this transaction ends, whatever the source changes is copied anew each time: take
    /// snapshots in [`TransactionHook::in_commit`](super::TransactionHook::in_commit), or commit right after.
    ///
    /// The snapshot must not be changed before this transaction is committed: a commit that finds it
    /// changed fails.
    pub fn snapshot(
        &self,
        snapshot: NewSnapshot,
        configure: impl FnOnce(&mut RootItem),
    ) -> Result<Arc<LiveTree>> {
        let NewSnapshot { source, id } = snapshot;
        let manager = self.manager();
        let missing = |key| Error::MissingItem { tree: manager.trees.root.id(), key };
        let source_key = Key::new(source, ItemType::ROOT_ITEM, 0);
        let source_tree = manager.tree(source)?.ok_or_else(|| missing(source_key))?;
        let generation = manager.generation();
        let tree = manager.forest.snapshot_tree(&source_tree, id)?;
        let mut roots = manager.roots.lock();
        manager.note_growth(&mut roots);
        let item = roots.change(source, |item| {
            item.last_snapshot = generation.into();
            *item
        });
        let mut item = item.ok_or_else(|| missing(source_key))?;
        item.refs = 1.into();
        configure(&mut item);
        roots.create(Key::new(id, ItemType::ROOT_ITEM, generation), &beginning_of(&tree, &item));
        if let Some(quotas) = manager.quotas() {
            quotas.snapshot(source, id);
        }
        Ok(tree)
    }
}
