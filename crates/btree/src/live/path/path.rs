//! The blocks that a descent holds.

use larder_format::{Key, Node};

use super::trace::Trace;
use crate::block::Block;
use crate::expected::Expected;
use crate::live::bytes::leaf::LeafMut;
use crate::live::bytes::node::{NodeMut, pointer};
use crate::live::state::forest::InMemory;
use crate::live::state::tree::TreeState;
use crate::lock::{ReadGuard, WriteGuard};
use crate::root::TreeRoot;

/// A block or root pointer that a descent reached, and how the descent holds it.
pub(crate) enum Held<'t> {
    RootRead(#[expect(dead_code, reason = "held, never looked at")] ReadGuard<'t, TreeRoot>),
    RootWrite(WriteGuard<'t, TreeRoot>),
    /// A block that no thread changes, so that it needs no lock.
    Clean(Block),
    Read(ReadGuard<'t, Block>),
    Write(WriteGuard<'t, Block>),
}

impl Held<'_> {
    /// The block; `None` for a root pointer.
    pub(crate) fn block(&self) -> Option<&Block> {
        match self {
            Self::RootRead(_) | Self::RootWrite(_) => None,
            Self::Clean(block) => Some(block),
            Self::Read(guard) => Some(guard),
            Self::Write(guard) => Some(guard),
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::RootWrite(_) | Self::Write(_))
    }
}

/// A step of a path.
pub(crate) struct Step<'t> {
    pub(crate) held: Held<'t>,
    /// The child that the next step is, or the place in the leaf.
    pub(crate) slot: usize,
}

/// From the highest block (or root pointer) that is held down to the leaf. Each step except the
/// last is write-locked and the parent of the next.
pub(crate) struct Path<'t> {
    pub(crate) tree: &'t TreeState,
    pub(crate) steps: Vec<Step<'t>>,
    /// Whether the item at the leaf's slot has the key of the search.
    pub(crate) found: bool,
    /// How many items, from the leaf's slot on, a deletion removes.
    pub(crate) count: usize,
    /// The first key after the leaf. It can only have grown since.
    pub(crate) upper: Option<Key>,
    /// The internal nodes that the descent passed.
    pub(crate) trace: Trace,
}

impl<'t> Path<'t> {
    /// A path whose only step so far is `first`.
    pub(crate) fn new(tree: &'t TreeState, first: Held<'t>) -> Self {
        let mut steps = Vec::with_capacity(4);
        steps.push(Step { held: first, slot: 0 });
        Self { tree, steps, found: false, count: 0, upper: None, trace: Trace::default() }
    }

    /// Index of the last step.
    pub(crate) fn bottom(&self) -> usize {
        self.steps.len() - 1
    }

    /// The block of step `index`, which is no root pointer.
    pub(crate) fn block(&self, index: usize) -> &Block {
        self.steps[index].held.block().expect("only a path's first step is a root pointer")
    }

    pub(crate) fn node(&self, index: usize) -> Node<'_> {
        self.block(index).node()
    }

    /// The bytes of step `index`, which is a write-locked block.
    pub(crate) fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        match &mut self.steps[index].held {
            Held::Write(guard) => guard.bytes_mut(),
            _ => unreachable!("only write-locked blocks are changed"),
        }
    }

    /// The leaf at the end.
    pub(crate) fn leaf(&self) -> &Block {
        self.block(self.bottom())
    }

    /// The place in the leaf.
    pub(crate) fn slot(&self) -> usize {
        self.steps[self.bottom()].slot
    }

    pub(crate) fn leaf_mut(&mut self) -> LeafMut<'_> {
        LeafMut::new(self.bytes_mut(self.bottom()))
    }

    /// Goes to the child at `slot` of the last step, a node, and notes what the node is like.
    pub(crate) fn choose_child(&mut self, slot: usize) {
        let Some(step) = self.steps.last_mut() else { return };
        step.slot = slot;
        if let Some(block) = step.held.block() {
            self.trace.note(block.node(), slot, self.tree.may_change(block));
        }
    }

    /// Enters a child of the last step. The last step stays held only if it may have to change.
    pub(crate) fn push(&mut self, held: Held<'t>) {
        if !self.steps.last().is_some_and(|step| step.held.is_write()) {
            self.steps.pop();
        }
        self.steps.push(Step { held, slot: 0 });
    }

    /// Releases everything above the leaf.
    pub(crate) fn release_above_leaf(&mut self) {
        let bottom = self.bottom();
        self.steps.drain(..bottom);
    }

    /// Puts the first key that the block of step `from` has now into the nodes above it.
    pub(crate) fn fix_first_keys(&mut self, from: usize) {
        for child in (1..=from).rev() {
            let Held::Write(_) = self.steps[child - 1].held else { return };
            let Some(key) = self.node(child).first_key() else { return };
            let slot = self.steps[child - 1].slot;
            NodeMut::new(self.bytes_mut(child - 1)).set_key(slot, key);
            if slot > 0 {
                return;
            }
        }
    }

    /// Makes another block the root, if the path holds the root pointer.
    pub(crate) fn set_root(&mut self, root: TreeRoot) {
        if let Held::RootWrite(guard) = &mut self.steps[0].held {
            self.tree.set_root(guard, root);
        }
    }

    /// Makes the pointer of step `at` lead to `new`, which takes the place of a block with equal
    /// keys.
    pub(crate) fn replace_child(&mut self, at: usize, new: &Block) {
        let (logical, generation) = (new.logical(), new.generation());
        let Step { held, slot } = &mut self.steps[at];
        match held {
            Held::RootWrite(root) => {
                let root_now = **root;
                self.tree.set_root(root, TreeRoot { logical, generation, ..root_now });
            }
            Held::Write(parent) => {
                NodeMut::new(parent.bytes_mut()).set_block(*slot, logical, generation);
            }
            _ => unreachable!("only write-locked blocks are changed"),
        }
    }

    /// The child at `slot` of step `at`, a node, write-locked: if the child is in memory, a writer
    /// may change it in place, and its lock is free. For changes that are useful but never needed.
    pub(crate) fn try_own_child(&self, at: usize, slot: usize) -> Option<WriteGuard<'t, Block>> {
        let (tree, parent) = (self.tree, self.node(at));
        if slot >= parent.nritems() {
            return None;
        }
        match tree.forest.in_memory(&Expected::child(tree.id, parent, slot))? {
            InMemory::Live(live) if tree.is_own(live.generation) => {
                tree.try_write_block(&live, parent.key(slot)).filter(|guard| tree.may_change(guard))
            }
            _ => None,
        }
    }

    /// Makes the parent of step `at` point to `right`, next to the step's own block.
    pub(crate) fn add_sibling(&mut self, at: usize, right: &Block, key: Key) {
        let slot = self.steps[at - 1].slot;
        let pointer = pointer(key, right.logical(), right.generation());
        NodeMut::new(self.bytes_mut(at - 1)).insert(slot + 1, &[pointer]);
    }

    /// Moves the path from step `at` to its right neighbour.
    pub(crate) fn step_right(&mut self, at: usize, right: WriteGuard<'t, Block>, slot: usize) {
        self.steps[at - 1].slot += 1;
        self.steps[at] = Step { held: Held::Write(right), slot };
    }

    /// Puts `data` in place of the data of the item under the path. The leaf has room for it.
    pub(crate) fn replace_item(&mut self, data: &[u8]) {
        let slot = self.slot();
        self.leaf_mut().replace(&[(slot, data)]);
    }

    /// Whether the leaf's parent, block or root pointer, is held.
    pub(crate) fn holds_parent(&self) -> bool {
        self.steps.len() > 1
    }

    /// Whether everything up to `level` is held (`ROOT_POINTER_LEVEL` means the root pointer too).
    pub(crate) fn holds(&self, level: u8) -> bool {
        match self.steps[0].held.block() {
            Some(block) => block.level() >= level,
            None => true,
        }
    }
}
