//! New trees.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::item::RootItem;
use larder_format::{ItemType, Key};

use super::{Handle, TransactionManager};
use crate::error::Result;

impl TransactionManager {
    /// Makes a new and empty tree, of whose id there is none. `item` says what its root item is to be,
    /// but for where the tree begins; the commit of the handle's transaction writes it.
    pub fn create_tree(
        &self,
        handle: &Handle<'_>,
        id: u64,
        mut item: RootItem,
    ) -> Result<Arc<LiveTree>> {
        let tree = self.forest.create_tree(id)?;
        let root = tree.root();
        item.bytenr = root.logical.0.into();
        item.level = root.level;
        item.generation = handle.generation().into();
        item.generation_v2 = handle.generation().into();
        self.roots.lock().create(Key::new(id, ItemType::ROOT_ITEM, 0), item);
        Ok(tree)
    }
}
