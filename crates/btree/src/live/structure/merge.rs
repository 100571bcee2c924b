//! Merging blocks that have become small with a neighbour.
//!
//! No change needs a merge: it only helps later changes. So a thread merges only where it may
//! change the neighbour in place and the neighbour's lock is free.

use larder_format::Node;
use larder_format::node::{KeyPointer, leaf_data_size, max_key_pointers};

use crate::block::Block;
use crate::live::bytes::leaf::{LeafMut, copy_items, used_bytes};
use crate::live::bytes::node::NodeMut;
use crate::live::path::path::Path;
use crate::lock::WriteGuard;

/// A leaf that uses less than this part of its bytes should merge.
const SMALL_PART: usize = 3;
/// A node with less than this part of its capacity in pointers should merge.
const LEAST_NODE_FILL: usize = 4;

/// Whether a leaf should merge.
pub(crate) fn is_small_leaf(leaf: Node<'_>) -> bool {
    used_bytes(leaf) < leaf_data_size(leaf.bytes().len()) / SMALL_PART
}

/// The least pointers of a node that should not merge.
pub(crate) fn least_pointers(nodesize: usize) -> usize {
    max_key_pointers(nodesize) / LEAST_NODE_FILL
}

/// Whether so much may go into one block: a merged block must not split again at once.
fn leaves_room(used: usize, capacity: usize) -> bool {
    used <= capacity / 4 * 3
}

/// Which neighbour a block merges with.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// Merges the leaf with a neighbour that has room for it; whether it did. The right one of the two
/// goes away.
pub(super) fn merge_leaf(path: &mut Path<'_>) -> bool {
    let (tree, at) = (path.tree, path.bottom());
    let capacity = leaf_data_size(tree.forest.nodesize());
    for side in [Side::Left, Side::Right] {
        let Some((slot, mut sibling)) = neighbour(path, at, side) else { continue };
        let (leaf, other) = (path.leaf().node(), sibling.node());
        if !leaves_room(used_bytes(leaf) + used_bytes(other), capacity) {
            continue;
        }
        let (here, there) = (leaf.nritems(), other.nritems());
        match side {
            Side::Left => {
                let mut left = LeafMut::new(sibling.bytes_mut());
                copy_items(path.leaf().node(), 0..here, &mut left, there);
                tree.free(path.leaf());
            }
            Side::Right => {
                copy_items(sibling.node(), 0..there, &mut path.leaf_mut(), here);
                tree.free(&sibling);
            }
        }
        remove_right_pointer(path, at, side, slot);
        return true;
    }
    false
}

/// Merges the node of step `at`, the last, with a neighbour that has room for it, if it has too few
/// pointers; whether it did. The right one of the two goes away.
pub(super) fn merge_node(path: &mut Path<'_>, at: usize) -> bool {
    let tree = path.tree;
    let nodesize = tree.forest.nodesize();
    if path.node(at).nritems() >= least_pointers(nodesize) {
        return false;
    }
    for side in [Side::Left, Side::Right] {
        let Some((slot, mut sibling)) = neighbour(path, at, side) else { continue };
        let (here, there) = (path.node(at).nritems(), sibling.node().nritems());
        if !leaves_room(here + there, max_key_pointers(nodesize)) {
            continue;
        }
        match side {
            Side::Left => {
                let moved: Vec<KeyPointer> = path.node(at).key_pointers().to_vec();
                NodeMut::new(sibling.bytes_mut()).insert(there, &moved);
                tree.free(path.block(at));
            }
            Side::Right => {
                let moved: Vec<KeyPointer> = sibling.node().key_pointers().to_vec();
                NodeMut::new(path.bytes_mut(at)).insert(here, &moved);
                tree.free(&sibling);
            }
        }
        remove_right_pointer(path, at, side, slot);
        return true;
    }
    false
}

/// Takes the right one of the two merged blocks, step `at` and the sibling at `slot`, from their
/// parent, which becomes the last step.
fn remove_right_pointer(path: &mut Path<'_>, at: usize, side: Side, slot: usize) {
    let gone = match side {
        Side::Left => path.steps[at - 1].slot,
        Side::Right => slot,
    };
    path.steps.truncate(at);
    NodeMut::new(path.bytes_mut(at - 1)).remove(gone..gone + 1);
    path.tree.forest.counters.merges.add(1);
}

/// The neighbour of step `at` under the same parent, and its slot.
fn neighbour<'t>(path: &Path<'t>, at: usize, side: Side) -> Option<(usize, WriteGuard<'t, Block>)> {
    let slot = path.steps[at - 1].slot;
    let slot = match side {
        Side::Left => slot.checked_sub(1)?,
        Side::Right => slot + 1,
    };
    path.try_own_child(at - 1, slot).map(|guard| (slot, guard))
}
