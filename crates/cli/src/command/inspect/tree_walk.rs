//! Walks a whole tree and writes every block of it, reading and formatting on all cores.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_format::node::MAX_LEVELS;
use larder_format::{Key, Logical, Node};
use larder_platform::errno::in_words;
use larder_volume::{BlockExpectation, Volume};

use crate::pipeline;
use crate::print::{NodeStyle, put_node};

/// Blocks that a thread reads and formats at a time.
const BATCH_BLOCKS: usize = 32;

/// A tree block and its expectations.
#[derive(Clone, Copy, Debug)]
pub struct BlockPointer {
    /// Its address.
    pub logical: Logical,
    /// Its generation, where known.
    pub generation: Option<u64>,
    /// Distance from the leaves.
    pub level: u8,
}

/// The order in which blocks of a tree are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each level from left to right, from the root to the leaves.
    BreadthFirst,
    /// Each node before what is below it, from left to right.
    DepthFirst,
    /// The leaves from left to right.
    LeavesOnly,
}

/// Writes trees. A block that cannot be read is reported on standard error, and the walk goes on.
pub struct TreeWalk<'a> {
    volume: &'a Volume,
    style: NodeStyle,
    order: Order,
    failed: AtomicBool,
}

/// The result for a batch of blocks.
struct Batch {
    text: Vec<u8>,
    children: Vec<BlockPointer>,
}

impl<'a> TreeWalk<'a> {
    pub fn new(volume: &'a Volume, style: NodeStyle, order: Order) -> Self {
        Self { volume, style, order, failed: AtomicBool::new(false) }
    }

    /// Whether a block could not be read.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Writes the whole tree below `root`.
    pub fn dump(&self, root: BlockPointer, out: &mut impl Write) -> anyhow::Result<()> {
        match self.order {
            Order::BreadthFirst | Order::LeavesOnly => self.by_level(root, out),
            Order::DepthFirst => self.depth_first(root, out),
        }
    }

    /// Writes the block at `logical`, and with `follow` all blocks below it.
    pub fn dump_block(
        &self,
        logical: Logical,
        follow: bool,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let mut buffer = self.buffer();
        let expectation = BlockExpectation::default();
        self.volume.read_tree_block(logical, &expectation, &mut buffer)?;
        let node = Node::parse(&buffer)?;
        if follow {
            let generation = Some(node.header().generation.get());
            return self.dump(BlockPointer { logical, generation, level: node.level() }, out);
        }
        let mut text = Vec::new();
        put_node(&mut text, node, self.style);
        out.write_all(&text)?;
        Ok(())
    }

    /// Calls `visit` on every item below `root`, in order.
    pub fn for_each_item(&self, root: BlockPointer, mut visit: impl FnMut(Key, &[u8])) {
        let mut buffer = self.buffer();
        let mut stack = vec![root];
        while let Some(pointer) = stack.pop() {
            let Some(node) = self.read(pointer, &mut buffer) else { continue };
            if node.is_leaf() {
                node.iter_items().for_each(|(key, data)| visit(key, data));
            } else {
                stack.extend(children(node).rev());
            }
        }
    }

    /// Room for a block.
    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.volume.nodesize() as usize]
    }

    /// Reads a block, or reports the error on standard error.
    pub fn read<'b>(&self, pointer: BlockPointer, buffer: &'b mut [u8]) -> Option<Node<'b>> {
        let expectation = BlockExpectation {
            generation: pointer.generation,
            level: Some(pointer.level),
            ..BlockExpectation::default()
        };
        match self.volume.read_tree_block(pointer.logical, &expectation, buffer) {
            Ok(_) => Some(Node::from_checked(buffer)),
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                eprintln!("ERROR: {}", in_words(&error));
                None
            }
        }
    }

    /// Reads and writes blocks of one level.
    fn batch(&self, pointers: &[BlockPointer]) -> Batch {
        let mut batch = Batch { text: Vec::with_capacity(1 << 20), children: Vec::new() };
        let mut buffer = self.buffer();
        for pointer in pointers {
            if let Some(node) = self.read(*pointer, &mut buffer) {
                if node.is_leaf() || self.order != Order::LeavesOnly {
                    put_node(&mut batch.text, node, self.style);
                }
                if !node.is_leaf() {
                    batch.children.extend(children(node));
                }
            }
        }
        batch
    }

    fn by_level(&self, root: BlockPointer, out: &mut impl Write) -> anyhow::Result<()> {
        let mut level = vec![root];
        // Levels descend by one, since each block's level is checked against its pointer's.
        for _ in 0..MAX_LEVELS {
            let mut below = Vec::new();
            let work = |pointers: &[BlockPointer]| self.batch(pointers);
            pipeline::in_order(&level, BATCH_BLOCKS, work, |batch| {
                below.extend(batch.children);
                out.write_all(&batch.text)
            })?;
            level = below;
        }
        Ok(())
    }

    fn depth_first(&self, root: BlockPointer, out: &mut impl Write) -> anyhow::Result<()> {
        let mut buffer = self.buffer();
        let Some(node) = self.read(root, &mut buffer) else { return Ok(()) };
        let mut text = Vec::new();
        put_node(&mut text, node, self.style);
        out.write_all(&text)?;
        if node.is_leaf() {
            return Ok(());
        }
        let below: Vec<_> = children(node).collect();
        if root.level == 1 {
            let work = |pointers: &[BlockPointer]| self.batch(pointers);
            pipeline::in_order(&below, BATCH_BLOCKS, work, |batch| out.write_all(&batch.text))?;
            return Ok(());
        }
        below.into_iter().try_for_each(|child| self.depth_first(child, out))
    }
}

/// The blocks that a node points to.
pub fn children(node: Node<'_>) -> impl DoubleEndedIterator<Item = BlockPointer> + use<'_> {
    let level = node.level() - 1;
    node.key_pointers().iter().map(move |pointer| BlockPointer {
        logical: pointer.blockptr(),
        generation: Some(pointer.generation.get()),
        level,
    })
}
