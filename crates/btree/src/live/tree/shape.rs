//! The shape of a tree, walked and checked as a whole.

use larder_format::{Key, Node};

use super::live_tree::LiveTree;
use crate::block::{Block, verify};
use crate::error::{Problem, TreeError};
use crate::expected::Expected;
use crate::live::bytes::leaf::used_bytes;
use crate::live::state::forest::InMemory;

/// The blocks and items of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Blocks by level, from the leaves up.
    pub blocks: Vec<u64>,
    /// Items in all leaves.
    pub items: u64,
    /// Bytes of these items with their headers.
    pub used_bytes: u64,
}

impl LiveTree {
    /// Walks the whole tree and checks every block as if it came from a device: structure, levels,
    /// keys and generations against the parent's. No other thread may change the tree meanwhile.
    pub fn shape(&self) -> Result<Shape, TreeError> {
        let root = self.root();
        let mut shape = Shape { blocks: vec![0; usize::from(root.level) + 1], ..Shape::default() };
        self.visit(&root.into(), None, &mut shape)?;
        Ok(shape)
    }

    fn visit(
        &self,
        expected: &Expected,
        upper: Option<Key>,
        shape: &mut Shape,
    ) -> Result<(), TreeError> {
        let block = self.look(expected)?;
        let wrong = |problem: Problem| TreeError::new(expected, problem);
        let context = self.state.forest.cache.store().tree_check();
        verify(expected, block.bytes(), context.as_ref()).map_err(wrong)?;
        let node = block.node();
        if let (Some(last), Some(bound)) = (node.last_key(), upper)
            && last >= bound
        {
            return Err(wrong(Problem::OutOfRange { last, bound }));
        }
        shape.blocks[usize::from(node.level())] += 1;
        if node.is_leaf() {
            shape.items += node.nritems() as u64;
            shape.used_bytes += used_bytes(node) as u64;
            return Ok(());
        }
        for slot in 0..node.nritems() {
            let child = Expected::child(self.id(), node, slot);
            if child.generation > block.generation() {
                let (expected, found) = (block.generation(), child.generation);
                let problem = Problem::Mismatch { field: "child's generation", expected, found };
                return Err(wrong(problem));
            }
            self.visit(&child, next_key(node, slot).or(upper), shape)?;
        }
        Ok(())
    }

    /// The block that a pointer of this tree leads to, as it is now, in memory or on a device. For
    /// walks over the blocks of a tree that no other thread changes meanwhile.
    pub fn look(&self, expected: &Expected) -> Result<Block, TreeError> {
        Ok(match self.state.forest.in_memory(expected) {
            Some(InMemory::Live(live)) => self.state.read_block(&live, Key::MIN).clone(),
            Some(InMemory::Clean(block)) => block,
            None => self.state.forest.cache.read(expected)?.block,
        })
    }
}

fn next_key(node: Node<'_>, slot: usize) -> Option<Key> {
    (slot + 1 < node.nritems()).then(|| node.key(slot + 1))
}
