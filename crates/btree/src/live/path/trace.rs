//! What a descent saw of the internal nodes that it passed.

use larder_format::Node;

use crate::live::bytes::node;
use crate::live::state::tree::ROOT_POINTER_LEVEL;

/// An internal node that a descent passed.
#[derive(Clone, Copy)]
struct PassedNode {
    level: u8,
    slot: usize,
    nritems: usize,
    has_room: bool,
    may_change: bool,
}

/// What a descent saw of the internal nodes that it passed.
///
/// Other threads may change the nodes before the descent uses this. So it only tells which blocks
/// to lock, and the next descent looks at them again once they are locked.
#[derive(Default)]
pub(crate) struct Trace {
    passed: Vec<PassedNode>,
    root_level: u8,
}

impl Trace {
    /// Notes an internal node, and whether a writer may change it in place.
    pub(crate) fn note(&mut self, node: Node<'_>, slot: usize, may_change: bool) {
        if self.passed.is_empty() {
            self.root_level = node.level();
        }
        self.passed.push(PassedNode {
            level: node.level(),
            slot,
            nritems: node.nritems(),
            has_room: node::has_room(node, 2),
            may_change,
        });
    }

    /// Level of the root block.
    pub(crate) fn root_level(&self) -> u8 {
        self.root_level
    }

    fn lowest(&self, fits: impl Fn(&PassedNode) -> bool) -> Option<u8> {
        self.passed.iter().rev().find(|passed| fits(passed)).map(|passed| passed.level)
    }

    /// The level up to which a thread must write-lock all blocks to copy a block below.
    pub(crate) fn level_for_copy(&self) -> u8 {
        self.lowest(|passed| passed.may_change).unwrap_or(ROOT_POINTER_LEVEL)
    }

    /// The lowest level that has room for the pointers that splits below it add.
    pub(crate) fn level_for_split(&self) -> u8 {
        self.lowest(|passed| passed.has_room && passed.may_change).unwrap_or(ROOT_POINTER_LEVEL)
    }

    /// The lowest level whose own first key stays when the leaf's first key changes.
    pub(crate) fn level_for_first_key(&self) -> u8 {
        self.lowest(|passed| passed.slot > 0).unwrap_or(self.root_level)
    }

    /// The lowest level that can lose a pointer without losing its first key or becoming so empty
    /// that it should merge, or be a root with one child.
    pub(crate) fn level_for_removal(&self, least_pointers: usize) -> u8 {
        let root_level = self.root_level;
        let stays = |passed: &PassedNode| {
            let least = if passed.level == root_level { 2 } else { least_pointers };
            passed.slot > 0 && passed.nritems > least
        };
        self.lowest(stays).unwrap_or(ROOT_POINTER_LEVEL)
    }
}
