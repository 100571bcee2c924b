//! Inodes that are listed for deletion.

use std::collections::HashSet;

use larder_format::{ItemType, Key, objectid};

use crate::blocks::{BlockReader, ExpectedBlock, Forest};
use crate::context::Context;

/// Inodes that are listed for deletion, each with the tree in which its list was first reached. A
/// crash may leave all, some or none of such an inode's items. Deleting changes the leaf of an
/// inode, so a leaf that trees share has the same orphans in all of them.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    inodes: HashSet<(u64, u64)>,
}

impl Orphans {
    /// Reads the lists of all trees of files. They are at the end of each tree.
    pub(crate) fn read(context: &Context<'_>, forest: &Forest) -> Self {
        let first = Key::new(objectid::ORPHAN, ItemType::ORPHAN_ITEM, 0);
        let has_list =
            |tree: u64| objectid::is_subvolume(tree) || tree == objectid::DATA_RELOC_TREE;
        let mut seen = HashSet::new();
        for root in forest.roots().iter().filter(|root| has_list(root.tree)) {
            forest.see_leaves_from(root, first, &mut seen);
        }
        let leaves = seen.into_iter().filter(|id| forest.block(*id).level == 0);
        let wanted: Vec<ExpectedBlock> = leaves.map(|leaf| forest.wanted(leaf)).collect();
        let mut orphans = Self::default();
        let mut reader = BlockReader::quiet(context);
        for batch in wanted.chunks(context.batch_blocks()) {
            reader.read(batch);
            for (index, leaf) in batch.iter().enumerate() {
                let Some(node) = reader.node(index) else { continue };
                let items = node.iter_items().map(|(key, _)| key).filter(|key| *key >= first);
                let of_orphans = items.filter(|key| key.item_type == ItemType::ORPHAN_ITEM);
                orphans.inodes.extend(of_orphans.map(|key| (leaf.tree, key.offset)));
            }
        }
        orphans
    }

    /// Whether `tree` lists an inode.
    pub(crate) fn contains(&self, tree: u64, ino: u64) -> bool {
        self.inodes.contains(&(tree, ino))
    }
}
