//! Merging blocks that have become small with a neighbour.
//!
//! Merging is never needed for a change, only good for what comes after: it is done where the
//! neighbour may be changed in place and its lock is free, and left alone elsewhere.

use larder_format::node::{KeyPointer, leaf_data_size, max_key_pointers};
use larder_format::{Key, Node};

use super::intent::Intent;
use super::leaf::{LeafMut, copy_items, used_bytes};
use super::node::NodeMut;
use super::path::Path;
use super::reach::least_pointers;
use super::search::Search;
use super::tree::LiveTree;
use crate::block::Block;
use crate::lock::WriteGuard;

/// A leaf that uses less than this part of its bytes is merged if it can be.
const SMALL_PART: usize = 3;

/// Whether a leaf should be merged.
pub(super) fn is_small_leaf(leaf: Node<'_>) -> bool {
    used_bytes(leaf) < leaf_data_size(leaf.bytes().len()) / SMALL_PART
}

/// Whether so much may go into one block: what has just been merged shall not split at once.
fn leaves_room(used: usize, capacity: usize) -> bool {
    used <= capacity / 4 * 3
}

/// Which neighbour a block merges with.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl LiveTree {
    /// Merges the leaf of `key` with a neighbour if it is small and that is easy. The change that made
    /// it small has succeeded: what goes wrong here is met again by who needs it.
    pub(super) fn merge_if_small(&self, key: Key) {
        let Ok(mut path) = Search::new(self, key, Intent::Merge).run() else { return };
        let at = path.bottom();
        if at == 0 || path.steps[at - 1].held.block().is_none() {
            return;
        }
        for side in [Side::Left, Side::Right] {
            let Some((slot, sibling)) = self.neighbour(&path, at, side) else { continue };
            let capacity = leaf_data_size(self.shared.nodesize());
            let (here, there) = (path.leaf().node(), sibling.node());
            if leaves_room(used_bytes(here) + used_bytes(there), capacity) {
                self.merge_leaf(&mut path, side, slot, sibling);
                self.shrink(&mut path, at - 1);
                return;
            }
        }
    }

    /// Merges the leaf with the sibling at `slot`. The right one of the two goes away.
    fn merge_leaf(
        &self,
        path: &mut Path<'_>,
        side: Side,
        slot: usize,
        mut sibling: WriteGuard<'_, Block>,
    ) {
        let at = path.bottom();
        let count = path.leaf().node().nritems();
        let there = sibling.node().nritems();
        match side {
            Side::Left => {
                let mut left = LeafMut::new(sibling.bytes_mut());
                copy_items(path.leaf().node(), 0..count, &mut left, there);
                self.free(path.leaf());
            }
            Side::Right => {
                copy_items(sibling.node(), 0..there, &mut path.leaf_mut(), count);
                self.free(&sibling);
            }
        }
        self.remove_right_pointer(path, at, side, slot);
    }

    /// Merges the node of step `at`, the last, into or with a neighbour if it has too few pointers;
    /// whether it did.
    pub(super) fn merge_node(&self, path: &mut Path<'_>, at: usize) -> bool {
        let nodesize = self.shared.nodesize();
        if path.node(at).nritems() >= least_pointers(nodesize) {
            return false;
        }
        for side in [Side::Left, Side::Right] {
            let Some((slot, mut sibling)) = self.neighbour(path, at, side) else { continue };
            let (here, there) = (path.node(at).nritems(), sibling.node().nritems());
            if !leaves_room(here + there, max_key_pointers(nodesize)) {
                continue;
            }
            match side {
                Side::Left => {
                    let moved: Vec<KeyPointer> = path.node(at).key_pointers().to_vec();
                    NodeMut::new(sibling.bytes_mut()).insert(there, &moved);
                    self.free(path.block(at));
                }
                Side::Right => {
                    let moved: Vec<KeyPointer> = sibling.node().key_pointers().to_vec();
                    NodeMut::new(path.bytes_mut(at)).insert(here, &moved);
                    self.free(&sibling);
                }
            }
            self.remove_right_pointer(path, at, side, slot);
            return true;
        }
        false
    }

    /// Takes the right one of the two merged blocks, step `at` and the sibling at `slot`, from their
    /// parent, which becomes the last step.
    fn remove_right_pointer(&self, path: &mut Path<'_>, at: usize, side: Side, slot: usize) {
        let gone = match side {
            Side::Left => path.steps[at - 1].slot,
            Side::Right => slot,
        };
        path.steps.truncate(at);
        NodeMut::new(path.bytes_mut(at - 1)).remove(gone..gone + 1);
        self.shared.counters.merges.add(1);
    }

    /// The neighbour of step `at` under the same parent, and its slot.
    fn neighbour<'t>(
        &'t self,
        path: &Path<'t>,
        at: usize,
        side: Side,
    ) -> Option<(usize, WriteGuard<'t, Block>)> {
        let slot = path.steps[at - 1].slot;
        let slot = match side {
            Side::Left => slot.checked_sub(1)?,
            Side::Right => slot + 1,
        };
        self.try_own_child(path, at - 1, slot).map(|guard| (slot, guard))
    }
}
