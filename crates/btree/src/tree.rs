//! A committed tree: a root that never changes.

use std::sync::Arc;

use larder_format::Key;

use crate::block::Block;
use crate::cache::{BlockCache, Fetched};
use crate::error::TreeError;
use crate::expected::Expected;
use crate::item_ref::ItemRef;
use crate::root::TreeRoot;

/// A committed tree. Any number of threads read it without locks.
#[derive(Clone, Debug)]
pub struct Tree {
    cache: Arc<BlockCache>,
    root: TreeRoot,
}

impl Tree {
    /// The tree that begins at `root`. Reads nothing yet.
    pub fn new(cache: Arc<BlockCache>, root: TreeRoot) -> Self {
        Self { cache, root }
    }

    /// Where the tree begins.
    pub fn root(&self) -> TreeRoot {
        self.root
    }

    /// The cache that its blocks go through.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The root block.
    pub fn root_block(&self) -> Result<Block, TreeError> {
        Ok(self.cache.read(&self.root.into())?.block)
    }

    /// The child at `slot` of `parent`. `upper` bounds the keys of `parent`, as *its* parent has
    /// it.
    ///
    /// # Panics
    /// When `parent` has no such child.
    pub fn child(
        &self,
        parent: &Block,
        slot: usize,
        upper: Option<Key>,
    ) -> Result<Fetched, TreeError> {
        let expected = Expected::child(self.root.tree, parent.node(), slot);
        let upper = parent.child_upper(slot, upper);
        let fetched = self.cache.read(&expected).map_err(|error| error.with_upper(upper))?;
        expected.check_upper(&fetched.block, upper)?;
        Ok(fetched)
    }

    /// The item with exactly this key.
    pub fn get(&self, key: Key) -> Result<Option<ItemRef>, TreeError> {
        let mut block = self.root_block()?;
        let mut upper = None;
        while !block.node().is_leaf() {
            let slot = block.node().child_slot(key);
            let child = self.child(&block, slot, upper)?.block;
            upper = block.child_upper(slot, upper);
            block = child;
        }
        Ok(block.node().search(key).ok().map(|slot| ItemRef::new(block, slot)))
    }
}
