//! A committed tree: a root that never changes.

use std::ops::RangeBounds;
use std::sync::Arc;

use larder_format::item::RootItem;
use larder_format::objectid::{CHUNK_TREE, ROOT_TREE};
use larder_format::{Key, Logical, Superblock};

use crate::block::{Block, Expected};
use crate::cache::{BlockCache, Fetched};
use crate::cursor::Cursor;
use crate::error::{Problem, TreeError};
use crate::item_ref::ItemRef;
use crate::range::Range;
use crate::readahead::Readahead;
use crate::view::ViewCursor;

/// Where a committed tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeRoot {
    /// The tree's id; for a log tree [`larder_format::objectid::TREE_LOG`].
    pub tree: u64,
    /// Address of the root block.
    pub logical: Logical,
    /// Level of the root block.
    pub level: u8,
    /// The transaction that wrote the root block.
    pub generation: u64,
}

impl TreeRoot {
    /// The tree of tree roots.
    pub fn of_root_tree(superblock: &Superblock) -> Self {
        Self {
            tree: ROOT_TREE,
            logical: superblock.root(),
            level: superblock.root_level,
            generation: superblock.generation.get(),
        }
    }

    /// The chunk tree.
    pub fn of_chunk_tree(superblock: &Superblock) -> Self {
        Self {
            tree: CHUNK_TREE,
            logical: superblock.chunk_root(),
            level: superblock.chunk_root_level,
            generation: superblock.chunk_root_generation.get(),
        }
    }

    /// The tree whose root item in the root tree has the objectid `tree`.
    pub fn of_item(tree: u64, item: &RootItem) -> Self {
        let generation = item.generation.get();
        Self { tree, logical: item.bytenr(), level: item.level, generation }
    }
}

impl From<TreeRoot> for Expected {
    fn from(root: TreeRoot) -> Self {
        Self {
            tree: root.tree,
            logical: root.logical,
            generation: root.generation,
            level: root.level,
            first_key: None,
        }
    }
}

/// A committed tree, walked by any number of threads without locks.
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

    /// The child at `slot` of `parent`. `upper` bounds `parent`'s keys as *its* parent has it.
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
        let upper = child_upper(parent, slot, upper);
        let fetched = self.cache.read(&expected).map_err(|error| error.with_upper(upper))?;
        check_upper(&expected, &fetched.block, upper)?;
        Ok(fetched)
    }

    /// The item with exactly this key.
    pub fn get(&self, key: Key) -> Result<Option<ItemRef>, TreeError> {
        let mut block = self.root_block()?;
        let mut upper = None;
        while !block.node().is_leaf() {
            let slot = block.node().child_slot(key);
            let child = self.child(&block, slot, upper)?.block;
            upper = child_upper(&block, slot, upper);
            block = child;
        }
        Ok(block.node().search(key).ok().map(|slot| ItemRef::new(block, slot)))
    }

    /// A cursor that stands nowhere yet.
    pub fn cursor(&self, readahead: Readahead) -> Cursor {
        Cursor::new(self.clone(), readahead)
    }

    /// The items whose keys lie in `range`, in order.
    pub fn range(&self, range: impl RangeBounds<Key>, readahead: Readahead) -> Range {
        Range::new(ViewCursor::Committed(self.cursor(readahead)), range)
    }
}

/// The first key after those of `parent`'s child at `slot`, where `upper` is that of `parent`;
/// `None` at the right edge of the tree.
pub(crate) fn child_upper(parent: &Block, slot: usize, upper: Option<Key>) -> Option<Key> {
    let node = parent.node();
    if slot + 1 < node.nritems() { Some(node.key(slot + 1)) } else { upper }
}

/// Whether the keys of a block that was read end below `upper`.
pub(crate) fn check_upper(
    expected: &Expected,
    block: &Block,
    upper: Option<Key>,
) -> Result<(), TreeError> {
    match (block.node().last_key(), upper) {
        (Some(last), Some(bound)) if last >= bound => {
            Err(TreeError::new(expected, Problem::OutOfRange { last, bound }).with_upper(upper))
        }
        _ => Ok(()),
    }
}
