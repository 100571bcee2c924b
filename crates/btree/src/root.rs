//! Where a tree begins.

use larder_format::item::RootItem;
use larder_format::objectid::{CHUNK_TREE, ROOT_TREE};
use larder_format::{Logical, Superblock};

use crate::expected::Expected;

/// Where a tree begins.
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
