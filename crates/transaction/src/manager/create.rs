//! New trees, and root items while the door is closed.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::item::RootItem;
use larder_format::objectid::is_subvolume;
use larder_format::{ItemType, Key};

use super::roots::beginning_of;
use super::{Exclusive, Handle, TransactionManager};
use crate::error::{Error, Result};

impl TransactionManager {
    /// Makes a new and empty tree. `item` says what its root item is to be, but for where the tree
    /// begins; the commit of the handle's transaction writes it.
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
            return Err(Error::ItemExists { tree: self.root_tree.id(), key });
        }
        let tree = self.forest.create_tree(id)?;
        self.roots.lock().create(key, &beginning_of(&tree, &item));
        if let Some(quotas) = self.quotas().filter(|_| is_subvolume(id)) {
            quotas.create(id);
        }
        Ok(tree)
    }
}

impl Exclusive<'_> {
    /// As [`TransactionManager::change_root_item`], with the door closed.
    pub fn change_root_item<T>(
        &self,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.manager.roots.lock().change(tree, change)
    }
}
