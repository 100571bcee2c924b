//! The blocks that a descent holds.

use larder_format::node::MAX_LEVELS;
use larder_format::{Key, Node};

use super::leaf::LeafMut;
use super::node::{self, NodeMut, pointer};
use crate::block::Block;
use crate::lock::{ReadGuard, WriteGuard};
use crate::root::TreeRoot;

/// What a descent has come to, and how it holds it.
pub(super) enum Held<'t> {
    RootRead(#[expect(dead_code, reason = "held, never looked at")] ReadGuard<'t, TreeRoot>),
    RootWrite(WriteGuard<'t, TreeRoot>),
    /// A block that nobody changes, so that nothing need be held.
    Clean(Block),
    Read(ReadGuard<'t, Block>),
    Write(WriteGuard<'t, Block>),
}

impl Held<'_> {
    /// The block; `None` for a root pointer.
    pub(super) fn block(&self) -> Option<&Block> {
        match self {
            Self::RootRead(_) | Self::RootWrite(_) => None,
            Self::Clean(block) => Some(block),
            Self::Read(guard) => Some(guard),
            Self::Write(guard) => Some(guard),
        }
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Self::RootWrite(_) | Self::Write(_))
    }
}

/// A step of a path.
pub(super) struct Step<'t> {
    pub(super) held: Held<'t>,
    /// The child that the next step is, or the place in the leaf.
    pub(super) slot: usize,
}

/// From the highest block (or root pointer) that is held down to the leaf. Each step but the last is
/// write-locked and the parent of the next.
pub(super) struct Path<'t> {
    pub(super) steps: Vec<Step<'t>>,
    /// Whether the item at the leaf's slot has the wanted key.
    pub(super) found: bool,
    /// How many items from the leaf's slot on are to be removed.
    pub(super) count: usize,
    /// The first key behind the leaf; it can only have grown since.
    pub(super) upper: Option<Key>,
    /// What the descent saw on its way.
    pub(super) trace: Trace,
}

impl<'t> Path<'t> {
    pub(super) fn new(root: Held<'t>) -> Self {
        let mut steps = Vec::with_capacity(4);
        steps.push(Step { held: root, slot: 0 });
        Self { steps, found: false, count: 0, upper: None, trace: Trace::default() }
    }

    /// Index of the last step.
    pub(super) fn bottom(&self) -> usize {
        self.steps.len() - 1
    }

    /// The block of step `index`, which is no root pointer.
    pub(super) fn block(&self, index: usize) -> &Block {
        self.steps[index].held.block().expect("only a path's first step is a root pointer")
    }

    pub(super) fn node(&self, index: usize) -> Node<'_> {
        self.block(index).node()
    }

    /// The bytes of step `index`, which is a write-locked block.
    pub(super) fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        match &mut self.steps[index].held {
            Held::Write(guard) => guard.bytes_mut(),
            _ => unreachable!("only write-locked blocks are changed"),
        }
    }

    /// The leaf at the end.
    pub(super) fn leaf(&self) -> &Block {
        self.block(self.bottom())
    }

    /// The place in the leaf.
    pub(super) fn slot(&self) -> usize {
        self.steps[self.bottom()].slot
    }

    pub(super) fn leaf_mut(&mut self) -> LeafMut<'_> {
        LeafMut::new(self.bytes_mut(self.bottom()))
    }

    /// Goes to the child at `slot` of the last step, a node, and notes what the node is like.
    pub(super) fn note(&mut self, slot: usize, may_change: impl Fn(&Block) -> bool) {
        let Some(step) = self.steps.last_mut() else { return };
        step.slot = slot;
        if let Some(block) = step.held.block() {
            self.trace.note(block.node(), slot, may_change(block));
        }
    }

    /// Enters a child of the last step, which stays held only if it may have to change.
    pub(super) fn push(&mut self, held: Held<'t>) {
        if !self.steps.last().is_some_and(|step| step.held.is_write()) {
            self.steps.pop();
        }
        self.steps.push(Step { held, slot: 0 });
    }

    /// Releases everything above the leaf.
    pub(super) fn release_above_leaf(&mut self) {
        let bottom = self.bottom();
        self.steps.drain(..bottom);
    }

    /// Makes the keys above step `from` say what the first key of its block is now.
    pub(super) fn fix_first_keys(&mut self, from: usize) {
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

    /// Lets the parent of step `at` point to `right` next to it.
    pub(super) fn add_sibling(&mut self, at: usize, right: &Block, key: Key) {
        let slot = self.steps[at - 1].slot;
        let pointer = pointer(key, right.logical(), right.generation());
        NodeMut::new(self.bytes_mut(at - 1)).insert(slot + 1, &[pointer]);
    }

    /// Moves the path from step `at` to its right neighbour.
    pub(super) fn step_right(&mut self, at: usize, right: WriteGuard<'t, Block>, slot: usize) {
        self.steps[at - 1].slot += 1;
        self.steps[at] = Step { held: Held::Write(right), slot };
    }

    /// Puts `data` in place of what the item under the path has. There is room.
    pub(super) fn replace_item(&mut self, data: &[u8]) {
        let slot = self.slot();
        self.leaf_mut().replace(&[(slot, data)]);
    }

    /// Whether the leaf's parent, block or root pointer, is held.
    pub(super) fn holds_parent(&self) -> bool {
        self.steps.len() > 1
    }

    /// Whether everything up to `level` is held (up to the root pointer: [`ROOT_POINTER_LEVEL`]).
    pub(super) fn holds(&self, level: u8) -> bool {
        match self.steps[0].held.block() {
            Some(block) => block.level() >= level,
            None => true,
        }
    }
}

/// The level of root pointers in the lock order: above all blocks.
pub(super) const ROOT_POINTER_LEVEL: u8 = MAX_LEVELS as u8;

/// An internal node that a descent passed.
#[derive(Clone, Copy)]
struct Passed {
    level: u8,
    slot: usize,
    nritems: usize,
    has_room: bool,
    may_change: bool,
}

/// What a descent saw of the internal nodes that it passed. It may be outdated by the time it is
/// used: it tells what to lock, and what is locked is looked at again.
#[derive(Default)]
pub(super) struct Trace {
    passed: Vec<Passed>,
    root_level: u8,
}

impl Trace {
    /// Notes an internal node, and whether it may be changed in place.
    fn note(&mut self, node: Node<'_>, slot: usize, may_change: bool) {
        if self.passed.is_empty() {
            self.root_level = node.level();
        }
        self.passed.push(Passed {
            level: node.level(),
            slot,
            nritems: node.nritems(),
            has_room: node::has_room(node, 2),
            may_change,
        });
    }

    /// Level of the root block.
    pub(super) fn root_level(&self) -> u8 {
        self.root_level
    }

    fn lowest(&self, fits: impl Fn(&Passed) -> bool) -> Option<u8> {
        self.passed.iter().rev().find(|passed| fits(passed)).map(|passed| passed.level)
    }

    /// The lowest level at or above which everything must be write-locked to copy a block below.
    pub(super) fn level_for_copy(&self) -> u8 {
        self.lowest(|passed| passed.may_change).unwrap_or(ROOT_POINTER_LEVEL)
    }

    /// The lowest level that takes in what splits below it give it.
    pub(super) fn level_for_split(&self) -> u8 {
        self.lowest(|passed| passed.has_room && passed.may_change).unwrap_or(ROOT_POINTER_LEVEL)
    }

    /// The lowest level whose own first key stays when the leaf's first key changes.
    pub(super) fn level_for_first_key(&self) -> u8 {
        self.lowest(|passed| passed.slot > 0).unwrap_or(self.root_level)
    }

    /// The lowest level that can lose a pointer without losing its first key or becoming so empty
    /// that it should merge, or be a root with one child.
    pub(super) fn level_for_removal(&self, least_pointers: usize) -> u8 {
        let root_level = self.root_level;
        let stays = |passed: &Passed| {
            let least = if passed.level == root_level { 2 } else { least_pointers };
            passed.slot > 0 && passed.nritems > least
        };
        self.lowest(stays).unwrap_or(ROOT_POINTER_LEVEL)
    }
}
