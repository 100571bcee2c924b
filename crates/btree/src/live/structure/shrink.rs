//! After a removal: blocks that are empty or small, and a root with one child.

use super::merge::{merge_leaf, merge_node};
use super::root::{lower_root, make_root};
use crate::live::bytes::node::NodeMut;
use crate::live::path::path::{Held, Path};

/// Merges the leaf with a neighbour, if that is easy, and then the nodes above that become small.
pub(crate) fn merge_small_leaf(path: &mut Path<'_>) {
    let at = path.bottom();
    if at > 0 && path.steps[at - 1].held.block().is_some() && merge_leaf(path) {
        shrink(path, at - 1);
    }
}

/// Removes the last step's block, which is empty, from its parent, and all blocks that this makes
/// empty, small or superfluous.
pub(crate) fn remove_block(path: &mut Path<'_>) {
    let tree = path.tree;
    let bottom = path.bottom();
    // A chain of blocks with one child each, from the root down, leaves only the leaf.
    let has_one_child = |at: usize| match path.steps[at].held.block() {
        Some(block) => block.node().nritems() == 1,
        None => true,
    };
    if (0..bottom).all(has_one_child) && matches!(path.steps[0].held, Held::RootWrite(_)) {
        for at in 1..bottom {
            tree.free(path.block(at));
        }
        make_root(path, bottom);
        return;
    }
    let mut at = bottom;
    loop {
        tree.free(path.block(at));
        tree.forest.counters.removals.add(1);
        path.steps.truncate(at);
        at -= 1;
        let slot = path.steps[at].slot;
        if path.node(at).nritems() > 1 {
            NodeMut::new(path.bytes_mut(at)).remove(slot..slot + 1);
            if slot == 0 {
                path.fix_first_keys(at);
            }
            break;
        }
    }
    shrink(path, at);
}

/// Merges the node of step `at`, the last, if it has lost too many pointers, and then the nodes
/// above that lose a pointer by that. Takes away a root that has only one child.
fn shrink(path: &mut Path<'_>, at: usize) {
    let mut at = at;
    while at > 0 && path.steps[at - 1].held.block().is_some() && merge_node(path, at) {
        at -= 1;
    }
    if matches!(path.steps[0].held, Held::RootWrite(_)) && path.steps.len() == 2 {
        lower_root(path);
    }
}
