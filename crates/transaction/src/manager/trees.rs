//! Trees by their ids, and their root items.

use std::sync::Arc;

use larder_btree::{LiveTree, TreeRoot};
use larder_format::item::RootItem;
use larder_format::objectid::is_subvolume;
use larder_format::{ItemType, Key};

use super::roots::{beginning_of, parse_root};
use super::{Handle, TransactionManager};
use crate::error::{Error, Result};
use crate::items::Items;
use crate::tree_items::TreeItems;

impl TransactionManager {
    /// The tree of tree roots. Its root items change through
    /// [`change_root_item`](Self::change_root_item) only.
    pub fn root_tree(&self) -> &Arc<LiveTree> {
        &self.trees.root
    }

    /// The extent tree.
    pub(crate) fn extent_tree(&self) -> &Arc<LiveTree> {
        &self.trees.extent
    }

    /// The tree of this id, opened by its root item if it is not open yet; `None` if there is none.
    pub fn tree(&self, id: u64) -> Result<Option<Arc<LiveTree>>> {
        if let Some(tree) = self.forest.tree(id) {
            return Ok(Some(tree));
        }
        let last = Key::new(id, ItemType::ROOT_ITEM, u64::MAX);
        let found = TreeItems::new(self.trees.root.clone()).at_or_before(last)?;
        let Some((key, data)) =
            found.filter(|(key, _)| (key.objectid, key.item_type) == (id, ItemType::ROOT_ITEM))
        else {
            return Ok(None);
        };
        let item = parse_root(key, &data)?;
        // Under the lock, so that a tree that is being dropped is not opened again half way.
        let mut roots = self.roots.lock();
        roots.open(key, &item);
        let (_, item) = roots.get(id).expect("it was just opened");
        let root = TreeRoot::of_item(id, item);
        self.space().note_level(root.level);
        Ok(Some(self.forest.open_tree(root, item.last_snapshot.get())))
    }

    /// The root item of a tree that is open, and its key. Where the item says that the tree begins may be out of
    /// date.
    pub fn root_item(&self, tree: u64) -> Option<(Key, RootItem)> {
        self.roots.lock().get(tree).map(|(key, item)| (key, *item))
    }

    /// Changes the root item of a tree that is open; the next commit writes it. Returns what `change` returns, or
    /// `None` if the tree is not open.
    pub fn change_root_item<T>(
        &self,
        _handle: &Handle<'_>,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.roots.lock().change(tree, change)
    }

    /// Makes a new and empty tree with the root item `item`, in which this sets where the tree begins. The commit
    /// of the handle's transaction writes the item.
    ///
    /// # Errors
    /// [`Error::ItemExists`] if there is a tree with this id.
    pub fn create_tree(
        &self,
        _handle: &Handle<'_>,
        id: u64,
        item: RootItem,
    ) -> Result<Arc<LiveTree>> {
        let key = Key::new(id, ItemType::ROOT_ITEM, 0);
        if self.tree(id)?.is_some() {
            return Err(Error::ItemExists { tree: self.trees.root.id(), key });
        }
        let tree = self.forest.create_tree(id)?;
        self.roots.lock().create(key, &beginning_of(&tree, &item));
        if let Some(quotas) = self.quotas().filter(|_| is_subvolume(id)) {
            quotas.create(id);
        }
        Ok(tree)
    }
}
