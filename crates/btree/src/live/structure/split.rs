//! Making room: pushing to a sibling, splitting leaves and nodes.
//!
//! All of these get their new blocks before they move anything, so that an error leaves the tree as
//! it was.

use larder_format::node::{KeyPointer, leaf_data_size};

use super::plan::Plan;
use super::push::{push_left, push_right};
use super::root::grow_below_root_pointer;
use crate::live::bytes::leaf::{LeafMut, copy_items};
use crate::live::bytes::node::NodeMut;
use crate::live::error::ChangeError;
use crate::live::path::path::Path;

/// Makes room for the plan at the path's place in the leaf. The path holds the leaf's parent, which
/// has room for two pointers.
pub(crate) fn make_room(path: &mut Path<'_>, plan: &Plan) -> Result<(), ChangeError> {
    let forest = &path.tree.forest;
    grow_below_root_pointer(path)?;
    if push_right(path, plan) || push_left(path, plan) {
        forest.counters.pushes.add(1);
        return Ok(());
    }
    // Items that come in ascending order fill each leaf before the next one begins.
    let last = plan.len() - 1;
    let capacity = leaf_data_size(forest.nodesize());
    let cut = if plan.appends() { Some(last) } else { plan.best_cut(1..=last, capacity) };
    forest.counters.leaf_splits.add(1);
    match cut {
        Some(cut) => split_leaf(path, plan, cut),
        None => split_leaf_twice(path, plan),
    }
}

/// Splits the node of the last step, and stays above the child that the path goes to. The path
/// holds the node's parent, which has room for a pointer.
pub(crate) fn split_node(path: &mut Path<'_>) -> Result<(), ChangeError> {
    grow_below_root_pointer(path)?;
    let at = path.bottom();
    let (node, slot) = (path.node(at), path.steps[at].slot);
    let count = node.nritems();
    // Keys that ascend always take the last child: the left node stays full.
    let middle = if slot + 1 == count { count - 2 } else { count / 2 };
    let key = node.key(middle);
    let mut right = path.tree.new_block(node.level(), key, path.block(at).logical())?;
    let moved: Vec<KeyPointer> = path.node(at).key_pointers()[middle..].to_vec();
    NodeMut::new(right.bytes_mut()).insert(0, &moved);
    NodeMut::new(path.bytes_mut(at)).remove(middle..count);
    path.add_sibling(at, &right, key);
    if slot >= middle {
        path.step_right(at, right, slot - middle);
    } else {
        path.upper = Some(key);
    }
    path.tree.forest.counters.node_splits.add(1);
    Ok(())
}

/// Splits the leaf at the cut, and goes to the side where the special item will be.
fn split_leaf(path: &mut Path<'_>, plan: &Plan, cut: usize) -> Result<(), ChangeError> {
    let at = path.bottom();
    let (stay, count) = (plan.items_left(cut), path.leaf().node().nritems());
    let right_key = plan.first_key_right(cut, path.leaf().node());
    let mut right = path.tree.new_block(0, right_key, path.leaf().logical())?;
    copy_items(path.leaf().node(), stay..count, &mut LeafMut::new(right.bytes_mut()), 0);
    path.leaf_mut().remove(stay..count);
    path.add_sibling(at, &right, right_key);
    if plan.is_left(cut) {
        path.upper = Some(right_key);
    } else {
        path.step_right(at, right, plan.special() - cut);
    }
    Ok(())
}

/// Splits the leaf before and after the special item, which gets a leaf of its own between.
fn split_leaf_twice(path: &mut Path<'_>, plan: &Plan) -> Result<(), ChangeError> {
    let tree = path.tree;
    let at = path.bottom();
    let (special, count) = (plan.special(), path.leaf().node().nritems());
    let after = plan.items_left(special + 1);
    let right_key = path.leaf().node().key(after);
    let near = path.leaf().logical();
    let mut middle = tree.new_block(0, plan.key(), near)?;
    let mut right = match tree.new_block(0, right_key, near) {
        Ok(right) => right,
        Err(error) => {
            tree.free(&middle);
            return Err(error);
        }
    };
    let leaf = path.leaf().node();
    copy_items(leaf, after..count, &mut LeafMut::new(right.bytes_mut()), 0);
    copy_items(leaf, special..after, &mut LeafMut::new(middle.bytes_mut()), 0);
    path.leaf_mut().remove(special..count);
    path.add_sibling(at, &right, right_key);
    path.add_sibling(at, &middle, plan.key());
    path.step_right(at, middle, 0);
    path.upper = Some(right_key);
    tree.forest.counters.double_splits.add(1);
    Ok(())
}
