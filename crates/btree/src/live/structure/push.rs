//! Moving items to a neighbour instead of splitting.
//!
//! Items go only to a neighbour under the same parent that a writer may change in place already: a
//! copy of the neighbour would cost as much as the push saves. The thread only tries the
//! neighbour's lock, so that it violates no order. A push must leave room to spare, or the next
//! insert would push again.

use std::ops::RangeInclusive;

use larder_format::node::leaf_data_size;

use super::plan::Plan;
use crate::live::bytes::leaf::{LeafMut, copy_items};
use crate::live::bytes::node::NodeMut;
use crate::live::path::path::{Held, Path, Step};

/// A push must leave this part of a leaf's capacity free.
const SPARE_PART: usize = 4;

/// Moves items from the end of the leaf to its right neighbour; whether that made the room.
pub(super) fn push_right(path: &mut Path<'_>, plan: &Plan) -> bool {
    let at = path.bottom();
    let parent_slot = path.steps[at - 1].slot;
    let Some(mut right) = path.try_own_child(at - 1, parent_slot + 1) else {
        return false;
    };
    let count = path.leaf().node().nritems();
    let both = plan.clone().before(right.node());
    let Some(cut) = push_cut(path, &both, 1..=plan.len() - 1, plan.appends()) else {
        return false;
    };
    let stay = plan.items_left(cut);
    let right_key = plan.first_key_right(cut, path.leaf().node());
    copy_items(path.leaf().node(), stay..count, &mut LeafMut::new(right.bytes_mut()), 0);
    path.leaf_mut().remove(stay..count);
    NodeMut::new(path.bytes_mut(at - 1)).set_key(parent_slot + 1, right_key);
    if plan.is_left(cut) {
        path.upper = Some(right_key);
    } else {
        // The bound stays that of the old leaf, which is lower than the new one's. No caller relies
        // on it, since the special item is not the last in its leaf.
        path.step_right(at, right, plan.special() - cut);
    }
    true
}

/// Moves items from the beginning of the leaf to its left neighbour; whether that made the room.
pub(super) fn push_left(path: &mut Path<'_>, plan: &Plan) -> bool {
    let at = path.bottom();
    let parent_slot = path.steps[at - 1].slot;
    let Some(before) = parent_slot.checked_sub(1) else { return false };
    let Some(mut left) = path.try_own_child(at - 1, before) else { return false };
    let there = left.node().nritems();
    let both = plan.clone().after(left.node());
    let Some(cut) = push_cut(path, &both, there + 1..=both.len() - 1, false) else {
        return false;
    };
    let moved = both.items_left(cut) - there;
    let own_cut = cut - there;
    let leaf_key = plan.first_key_right(own_cut, path.leaf().node());
    copy_items(path.leaf().node(), 0..moved, &mut LeafMut::new(left.bytes_mut()), there);
    path.leaf_mut().remove(0..moved);
    NodeMut::new(path.bytes_mut(at - 1)).set_key(parent_slot, leaf_key);
    if plan.is_left(own_cut) {
        path.upper = Some(leaf_key);
        path.steps[at - 1].slot = before;
        path.steps[at] = Step { held: Held::Write(left), slot: there + plan.special() };
    } else {
        path.steps[at].slot -= moved;
    }
    true
}

/// Where to cut the items of both leaves, if a push is worth it.
fn push_cut(
    path: &Path<'_>,
    both: &Plan,
    cuts: RangeInclusive<usize>,
    appends: bool,
) -> Option<usize> {
    let capacity = leaf_data_size(path.tree.forest.nodesize());
    if both.total() + capacity / SPARE_PART > 2 * capacity {
        return None;
    }
    let cuts = if appends { *cuts.end()..=*cuts.end() } else { cuts };
    both.best_cut(cuts, capacity)
}
