//! The bottom-up builder.

use larder_format::Key;
use larder_format::node::MAX_LEVELS;

use super::{BlockSink, OpenNode, TreeRoot};
use crate::MkfsError;

/// Builds one tree. It holds one block of each level.
///
/// Blocks are stored when the next entry does not fit them, so that no block is empty except the
/// only leaf of an empty tree, and every level except the root's has at least two blocks.
#[derive(Debug)]
pub(crate) struct TreeBuilder {
    owner: u64,
    node_size: usize,
    /// From the leaves up.
    levels: Vec<OpenNode>,
    last_key: Option<Key>,
    blocks: u64,
}

impl TreeBuilder {
    pub(crate) fn new(owner: u64, node_size: usize) -> Self {
        let levels = vec![OpenNode::new(owner, 0, node_size)];
        Self { owner, node_size, levels, last_key: None, blocks: 0 }
    }

    /// Adds an item. Keys ascend, and the item is no larger than fits a leaf.
    pub(crate) fn push(
        &mut self,
        key: Key,
        data: &[u8],
        sink: &mut dyn BlockSink,
    ) -> Result<(), MkfsError> {
        debug_assert!(self.last_key < Some(key), "{key} follows {:?}", self.last_key);
        self.last_key = Some(key);
        if !self.levels[0].fits_item(data.len()) {
            self.store(0, sink)?;
        }
        self.levels[0].push_item(key, data);
        Ok(())
    }

    /// Stores the full block at `level`, adds it to its parent and starts another one.
    fn store(&mut self, level: usize, sink: &mut dyn BlockSink) -> Result<(), MkfsError> {
        let node = &mut self.levels[level];
        let address = sink.store(node)?;
        let key = node.first_key().expect("only blocks with entries are stored on the way");
        node.clear();
        self.blocks += 1;
        let parent = level + 1;
        assert!(parent < MAX_LEVELS, "a tree of more blocks than any device holds");
        if self.levels.len() == parent {
            self.levels.push(OpenNode::new(self.owner, parent as u8, self.node_size));
        } else if !self.levels[parent].fits_pointer() {
            self.store(parent, sink)?;
        }
        self.levels[parent].push_pointer(key, address);
        Ok(())
    }

    /// Stores the remaining blocks, the root last.
    pub(crate) fn finish(mut self, sink: &mut dyn BlockSink) -> Result<TreeRoot, MkfsError> {
        let mut level = 0;
        while level + 1 < self.levels.len() {
            debug_assert!(self.levels[level].first_key().is_some());
            self.store(level, sink)?;
            level += 1;
        }
        let bytenr = sink.store(&mut self.levels[level])?;
        Ok(TreeRoot { bytenr, level: level as u8, blocks: self.blocks + 1 })
    }
}

#[cfg(test)]
mod tests {
    use larder_format::{ItemType, Logical, Node, Uuid};

    use super::*;

    #[derive(Default)]
    struct Blocks(Vec<Vec<u8>>);

    impl BlockSink for Blocks {
        fn store(&mut self, block: &mut OpenNode) -> Result<Logical, MkfsError> {
            let address = Logical(self.0.len() as u64);
            self.0.push(block.seal(address, Uuid::nil(), Uuid::nil()).to_vec());
            Ok(address)
        }
    }

    fn key(n: u64) -> Key {
        Key::new(n, ItemType::INODE_ITEM, 0)
    }

    fn build(items: u64, len: usize) -> (Vec<Vec<u8>>, TreeRoot) {
        let mut blocks = Blocks::default();
        let mut tree = TreeBuilder::new(5, 4096);
        for n in 0..items {
            tree.push(key(n), &vec![n as u8; len], &mut blocks).unwrap();
        }
        let root = tree.finish(&mut blocks).unwrap();
        (blocks.0, root)
    }

    /// The keys below a block; checks every block on the way.
    fn keys(blocks: &[Vec<u8>], at: Logical, level: u8) -> Vec<Key> {
        let node = Node::parse(&blocks[at.0 as usize]).unwrap();
        assert_eq!((node.level(), node.header().bytenr()), (level, at));
        if node.is_leaf() {
            return node.iter_items().map(|(key, _)| key).collect();
        }
        let children = node.key_pointers().iter();
        children
            .flat_map(|pointer| {
                let below = keys(blocks, pointer.blockptr(), level - 1);
                assert_eq!(below[0], pointer.key.get());
                below
            })
            .collect()
    }

    #[test]
    fn an_empty_tree_is_one_leaf() {
        let (blocks, root) = build(0, 0);
        assert_eq!((blocks.len(), root.level, root.blocks), (1, 0, 1));
        assert_eq!(Node::parse(&blocks[0]).unwrap().nritems(), 0);
    }

    #[test]
    fn trees_of_every_height_hold_all_keys_in_order() {
        for (items, len) in [(1, 100), (159, 0), (160, 0), (200, 300), (3000, 1000), (20_000, 40)] {
            let (blocks, root) = build(items, len);
            assert_eq!(root.blocks, blocks.len() as u64);
            let expected: Vec<_> = (0..items).map(key).collect();
            assert_eq!(keys(&blocks, root.bytenr, root.level), expected, "{items} of {len}");
        }
    }

    #[test]
    fn leaves_are_full() {
        let (blocks, root) = build(1590, 0);
        assert_eq!((root.level, blocks.len()), (1, 11));
    }
}
