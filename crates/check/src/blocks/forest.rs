//! All trees at once: every block that any tree reaches, each listed once.
//!
//! # Invariants
//! * A block is read at most once, however many pointers lead to it, even if they disagree.
//! * A child is one level below its parent, so no walk is deeper than eight blocks.
//! * A walk follows sound edges only ([`Forest::sound_child`]): the child's keys lie between its
//!   own pointer's key and the next pointer's. Hence no walk of a tree meets a block twice, and
//!   walking costs no more than the pointers that the image holds.

use std::collections::{HashMap, HashSet};

use larder_format::node::MAX_LEVELS;
use larder_format::{Key, Node};

use super::reader::{BlockReader, ExpectedBlock};
use crate::context::Context;
use crate::evidence::BlockEvidence;
use crate::report::Location;

/// Number of a block in a [`Forest`].
pub(crate) type BlockId = u32;

/// Whether a block was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unread,
    Good,
    /// Unusable. The reader reported why.
    Bad,
}

/// A tree block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) logical: u64,
    /// As the first pointer to it that was followed says.
    pub(crate) generation: u64,
    /// The tree in which it was first reached.
    pub(crate) tree: u64,
    /// The tree that made it, by its header.
    pub(crate) owner: u64,
    pub(crate) state: State,
    /// As the first pointer to it that was followed says.
    pub(crate) level: u8,
    pub(crate) is_empty: bool,
    first_key: Key,
    /// The last key in it and below it, as far as that is known.
    last_key: Key,
    first_pointer: u32,
    pointers: u32,
}

/// The facts that a block has about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockFacts {
    owner: u64,
    /// The first and the last key.
    keys: Option<(Key, Key)>,
}

impl From<&Node<'_>> for BlockFacts {
    fn from(node: &Node<'_>) -> Self {
        let keys = node.first_key().zip(node.last_key());
        Self { owner: node.header().owner.get(), keys }
    }
}

/// A pointer in an inner block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub(crate) key: Key,
    pub(crate) generation: u64,
    pub(crate) block: BlockId,
}

/// The pointer to the root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeRoot {
    /// Id of the tree; all log trees have [`larder_format::objectid::TREE_LOG`].
    pub(crate) tree: u64,
    pub(crate) block: BlockId,
    pub(crate) generation: u64,
    pub(crate) level: u8,
}

/// The progress of a subvolume's deletion: everything before `key` on the path down to `level` is
/// gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropProgress {
    pub(crate) key: Key,
    pub(crate) level: u8,
}

/// Every tree block of the file system.
#[derive(Default)]
pub(crate) struct Forest {
    blocks: Vec<Block>,
    pointers: Vec<Pointer>,
    by_address: HashMap<u64, BlockId>,
    roots: Vec<TreeRoot>,
    drops: HashMap<u64, DropProgress>,
    /// Blocks that were reached but not yet read, by level.
    fresh: [Vec<BlockId>; MAX_LEVELS],
}

impl Forest {
    /// Adds a tree. Its inner blocks are read by the next [`Forest::grow`].
    ///
    /// `level` must be below [`MAX_LEVELS`].
    pub(crate) fn plant(
        &mut self,
        tree: u64,
        logical: u64,
        generation: u64,
        level: u8,
    ) -> TreeRoot {
        let block = self.meet(tree, logical, generation, level);
        let root = TreeRoot { tree, block, generation, level };
        self.roots.push(root);
        root
    }

    /// Records that a part of `tree` was deleted. Call it before the tree is planted.
    pub(crate) fn set_drop_progress(&mut self, tree: u64, progress: DropProgress) {
        self.drops.insert(tree, progress);
    }

    fn meet(&mut self, tree: u64, logical: u64, generation: u64, level: u8) -> BlockId {
        let next = self.blocks.len() as BlockId;
        let id = *self.by_address.entry(logical).or_insert(next);
        if id == next {
            self.blocks.push(Block {
                logical,
                generation,
                tree,
                owner: tree,
                state: State::Unread,
                level,
                is_empty: false,
                first_key: Key::MIN,
                last_key: Key::MIN,
                first_pointer: 0,
                pointers: 0,
            });
            self.fresh[usize::from(level)].push(id);
        }
        id
    }

    /// Reads the inner blocks of all trees planted so far, level by level, and finds their leaves.
    pub(crate) fn grow(&mut self, context: &Context<'_>) {
        let mut reader = BlockReader::new(context);
        for level in (1..MAX_LEVELS).rev() {
            let mut fresh = std::mem::take(&mut self.fresh[level]);
            fresh.sort_unstable_by_key(|id| self.block(*id).logical);
            for batch in fresh.chunks(context.batch_blocks()) {
                let wanted: Vec<ExpectedBlock> = batch.iter().map(|id| self.wanted(*id)).collect();
                reader.read(&wanted);
                for (index, id) in batch.iter().enumerate() {
                    let node = reader.node(index);
                    self.record(*id, node.as_ref().map(BlockFacts::from));
                    if let Some(node) = node {
                        self.branch(*id, &node);
                    }
                }
                context.progress.advance((batch.len() * context.nodesize) as u64);
            }
        }
        self.settle();
    }

    /// The block as a request to a reader.
    pub(crate) fn wanted(&self, id: BlockId) -> ExpectedBlock {
        let Block { logical, generation, level, tree, .. } = *self.block(id);
        ExpectedBlock { block: id, logical, generation, level, tree }
    }

    /// Records the facts of a block, or that it is unusable.
    pub(crate) fn record(&mut self, id: BlockId, facts: Option<BlockFacts>) {
        let block = &mut self.blocks[id as usize];
        let Some(facts) = facts else {
            block.state = State::Bad;
            return;
        };
        block.state = State::Good;
        block.owner = facts.owner;
        block.is_empty = facts.keys.is_none();
        (block.first_key, block.last_key) = facts.keys.unwrap_or((Key::MIN, Key::MIN));
    }

    fn branch(&mut self, id: BlockId, node: &Node<'_>) {
        let Block { tree, level, .. } = *self.block(id);
        let gone = match self.drops.get(&tree) {
            Some(progress) if level >= progress.level => node.child_slot(progress.key),
            _ => 0,
        };
        let first_pointer = self.pointers.len() as u32;
        for pointer in &node.key_pointers()[gone..] {
            let (logical, generation) = (pointer.blockptr.get(), pointer.generation.get());
            let block = self.meet(tree, logical, generation, level - 1);
            self.pointers.push(Pointer { key: pointer.key.get(), generation, block });
        }
        let block = &mut self.blocks[id as usize];
        block.first_pointer = first_pointer;
        block.pointers = (node.nritems() - gone) as u32;
    }

    /// Takes the last keys of subtrees from the blocks below.
    fn settle(&mut self) {
        for level in 1..MAX_LEVELS as u8 {
            for id in 0..self.blocks.len() {
                let block = &self.blocks[id];
                if block.level != level || block.state != State::Good {
                    continue;
                }
                let Some(last) = self.pointers_of(id as BlockId).last() else { continue };
                let child = self.block(last.block);
                if child.state == State::Good && child.first_key == last.key {
                    let last_key = child.last_key.max(last.key);
                    self.blocks[id].last_key = last_key;
                }
            }
        }
    }

    /// The block at an address, if any tree reaches it.
    pub(crate) fn find(&self, logical: u64) -> Option<BlockId> {
        self.by_address.get(&logical).copied()
    }

    pub(crate) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(crate) fn roots(&self) -> &[TreeRoot] {
        &self.roots
    }

    /// The pointers of an inner block that was read, except those that a deletion has dropped.
    pub(crate) fn pointers_of(&self, id: BlockId) -> &[Pointer] {
        let Block { first_pointer, pointers, .. } = *self.block(id);
        &self.pointers[first_pointer as usize..(first_pointer + pointers) as usize]
    }

    /// The child at `slot` of an inner block, if it matches its pointer.
    pub(crate) fn sound_child(&self, id: BlockId, slot: usize) -> Option<BlockId> {
        let child = self.pointers_of(id)[slot].block;
        let is_sound = self.block(child).state != State::Bad && self.edge_fault(id, slot).is_none();
        is_sound.then_some(child)
    }

    /// The mismatch between a block and its child, except for a child that cannot be read. A leaf
    /// that was not read yet has no faults.
    fn edge_fault(&self, id: BlockId, slot: usize) -> Option<BlockEvidence> {
        let (parent, pointers) = (self.block(id), self.pointers_of(id));
        let (pointer, next) = (pointers[slot], pointers.get(slot + 1));
        let child = self.block(pointer.block);
        let may_share = |a: u64, b: u64| {
            use larder_format::objectid::{TREE_LOG, is_file_tree};
            a == b || (is_file_tree(a) && is_file_tree(b) && (a == TREE_LOG) == (b == TREE_LOG))
        };
        if child.level + 1 != parent.level {
            let (found, expected) = (child.level, parent.level - 1);
            return Some(BlockEvidence::Levels { found, expected });
        }
        if child.generation != pointer.generation {
            let (found, expected) = (child.generation, pointer.generation);
            return Some(BlockEvidence::Generations { found, expected });
        }
        if !may_share(child.tree, parent.tree) {
            let (found, expected) = (child.tree, parent.tree);
            return Some(BlockEvidence::Trees { found, expected });
        }
        if child.state != State::Good {
            return None;
        }
        if child.is_empty {
            return Some(BlockEvidence::Empty);
        }
        if child.first_key != pointer.key {
            let (found, expected) = (child.first_key, pointer.key);
            return Some(BlockEvidence::FirstKey { found, expected });
        }
        if let Some(next) = next.filter(|next| next.key <= child.last_key) {
            return Some(BlockEvidence::KeyRange { last: child.last_key, next: next.key });
        }
        None
    }

    /// Whether the root of a tree matches the pointer to it.
    pub(crate) fn is_sound_root(&self, root: &TreeRoot) -> bool {
        let block = self.block(root.block);
        block.state != State::Bad
            && block.level == root.level
            && block.generation == root.generation
    }

    /// Whether the leaves of a tree were not read yet.
    pub(crate) fn is_unread(&self, root: &TreeRoot) -> bool {
        let (leaves, _) = self.leaves_of(root);
        leaves.first().is_some_and(|leaf| self.block(*leaf).state == State::Unread)
    }

    /// The leaves of a tree in order of their keys, and whether any part of it is unreachable.
    pub(crate) fn leaves_of(&self, root: &TreeRoot) -> (Vec<BlockId>, bool) {
        let mut leaves = Vec::new();
        let mut is_whole = self.is_sound_root(root);
        if is_whole {
            is_whole = self.gather_leaves(root.block, &mut leaves);
        }
        (leaves, is_whole)
    }

    /// Adds to `seen` the reachable leaves of a tree that may hold keys from `key` on, and the
    /// blocks above them. Skips blocks that are in `seen` already.
    pub(crate) fn see_leaves_from(&self, root: &TreeRoot, key: Key, seen: &mut HashSet<BlockId>) {
        if self.is_sound_root(root) {
            self.see_from(root.block, key, seen);
        }
    }

    fn see_from(&self, id: BlockId, key: Key, seen: &mut HashSet<BlockId>) {
        if !seen.insert(id) || self.block(id).level == 0 {
            return;
        }
        let pointers = self.pointers_of(id);
        let first = pointers.partition_point(|pointer| pointer.key <= key).saturating_sub(1);
        for child in (first..pointers.len()).filter_map(|slot| self.sound_child(id, slot)) {
            self.see_from(child, key, seen);
        }
    }

    fn gather_leaves(&self, id: BlockId, leaves: &mut Vec<BlockId>) -> bool {
        if self.block(id).level == 0 {
            leaves.push(id);
            return true;
        }
        (0..self.pointers_of(id).len()).fold(true, |is_whole, slot| {
            match self.sound_child(id, slot) {
                Some(child) => self.gather_leaves(child, leaves) && is_whole,
                None => false,
            }
        })
    }

    /// Reports every mismatch between a pointer and its child. Call it when all blocks are read.
    pub(crate) fn check_edges(&mut self, context: &Context<'_>) {
        self.settle();
        for id in 0..self.blocks.len() as BlockId {
            for slot in 0..self.pointers_of(id).len() {
                if let Some(fault) = self.edge_fault(id, slot) {
                    let parent = self.block(id);
                    let child = self.block(self.pointers_of(id)[slot].block);
                    let location = Location::tree(parent.tree).at(child.logical);
                    let problem = Box::new(fault);
                    context
                        .find(location, BlockEvidence::Under { parent: parent.logical, problem });
                }
            }
        }
        for root in &self.roots {
            let block = self.block(root.block);
            let location = Location::tree(root.tree).at(block.logical);
            if block.level != root.level {
                context.find(location, BlockEvidence::OtherLevel { found: block.level });
            } else if block.generation != root.generation {
                let found = block.generation;
                context.find(location, BlockEvidence::OtherGeneration { found });
            }
        }
    }
}
