//! Making room: pushing to a sibling, splitting leaves and nodes, growing the root.
//!
//! What comes in is planned as if it were there already: the leaf's items with the new one among
//! them (or the grown one at its new size), in order of keys. A *cut* says how many of these go to
//! the left. Addresses for new blocks are asked for before anything moves, so that an error leaves
//! the tree as it was.

use larder_format::node::{KeyPointer, leaf_data_size};
use larder_format::{Key, Node};

use super::error::ChangeError;
use super::intent::Intent;
use super::leaf::{self, LeafMut, copy_items};
use super::node::{NodeMut, has_room, pointer};
use super::path::{Held, Path, Step};
use super::search::{Search, Stop};
use super::tree::LiveTree;
use crate::root::TreeRoot;

/// What a leaf will hold, item by item in order of keys.
#[derive(Clone)]
pub(super) struct Plan {
    /// Bytes of each item with its header.
    weights: Vec<usize>,
    /// The new or growing item.
    special: usize,
    /// Whether the special item is not in the leaf yet.
    is_new: bool,
}

impl Plan {
    /// `bytes` more at `slot` of `leaf`: a new item there, or growth of the one that is there.
    pub(super) fn new(leaf: Node<'_>, slot: usize, bytes: usize, is_new: bool) -> Self {
        let mut weights: Vec<usize> = leaf::weights(leaf).collect();
        if is_new {
            weights.insert(slot, bytes);
        } else {
            weights[slot] += bytes;
        }
        Self { weights, special: slot, is_new }
    }

    /// The same with the items of a left sibling before.
    pub(super) fn behind(mut self, left: Node<'_>) -> Self {
        let before: Vec<usize> = leaf::weights(left).collect();
        self.special += before.len();
        self.weights.splice(0..0, before);
        self
    }

    /// The same with the items of a right sibling behind.
    pub(super) fn before(mut self, right: Node<'_>) -> Self {
        self.weights.extend(leaf::weights(right));
        self
    }

    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    pub(super) fn total(&self) -> usize {
        self.weights.iter().sum()
    }

    /// Whether a new item goes behind all others.
    pub(super) fn appends(&self) -> bool {
        self.is_new && self.special + 1 == self.weights.len()
    }

    /// Where the special item is.
    pub(super) fn special(&self) -> usize {
        self.special
    }

    /// The cut among `cuts` that leaves the sides most alike, of those where both fit.
    pub(super) fn best_cut(
        &self,
        cuts: std::ops::RangeInclusive<usize>,
        capacity: usize,
    ) -> Option<usize> {
        let total = self.total();
        let mut left: usize = self.weights[..*cuts.start()].iter().sum();
        let mut best = None;
        for cut in cuts {
            let right = total - left;
            if left <= capacity && right <= capacity {
                let difference = left.abs_diff(right);
                if best.is_none_or(|(least, _)| difference < least) {
                    best = Some((difference, cut));
                }
            }
            left += self.weights.get(cut).copied().unwrap_or(0);
        }
        best.map(|(_, cut)| cut)
    }

    /// Whether the special item is left of the cut.
    pub(super) fn is_left(&self, cut: usize) -> bool {
        self.special < cut
    }

    /// How many of the items that are there now go left of the cut.
    pub(super) fn items_left(&self, cut: usize) -> usize {
        cut - usize::from(self.is_new && self.special < cut)
    }

    /// The first key right of the cut, where `leaf` is without the special item, which has `key`.
    pub(super) fn first_key_right(&self, cut: usize, leaf: Node<'_>, key: Key) -> Key {
        if cut == self.special { key } else { leaf.key(self.items_left(cut)) }
    }
}

impl<'t> Search<'t> {
    /// Makes room for two more pointers in the path's last step, a node, if it is write-locked.
    pub(super) fn make_room_for_pointers(&self, path: &mut Path<'t>) -> Result<(), Stop> {
        let at = path.bottom();
        if !path.steps[at].held.is_write() || has_room(path.node(at), 2) {
            return Ok(());
        }
        if at == 0 {
            return Err(Stop::Restart { level: path.trace.level_for_split() });
        }
        self.tree.grow_below_root_pointer(path)?;
        self.tree.split_node(path)?;
        Ok(())
    }

    /// Makes room for `bytes` at the path's place in the leaf, whose parent is held.
    pub(super) fn make_room(&self, path: &mut Path<'t>, bytes: usize) -> Result<(), Stop> {
        let is_new = match self.intent {
            Intent::Insert { .. } => true,
            Intent::Put { .. } => !path.found,
            _ => false,
        };
        let plan = Plan::new(path.leaf().node(), path.slot(), bytes, is_new);
        self.tree.grow_below_root_pointer(path)?;
        if self.tree.push_right(path, &plan, self.key) || self.tree.push_left(path, &plan, self.key)
        {
            self.tree.shared.counters.pushes.add(1);
            return Ok(());
        }
        let capacity = leaf_data_size(self.tree.shared.nodesize());
        // Items that come in ascending order fill each leaf before the next one begins.
        let last = plan.len() - 1;
        let cut = if plan.appends() { Some(last) } else { plan.best_cut(1..=last, capacity) };
        self.tree.shared.counters.leaf_splits.add(1);
        match cut {
            Some(cut) => self.tree.split_leaf(path, &plan, cut, self.key)?,
            None => self.tree.split_leaf_twice(path, &plan, self.key)?,
        }
        Ok(())
    }
}

impl LiveTree {
    /// If the last step hangs from the root pointer: puts a new root with one pointer between.
    fn grow_below_root_pointer<'t>(&'t self, path: &mut Path<'t>) -> Result<(), ChangeError> {
        let at = path.bottom();
        if path.steps[at - 1].held.block().is_some() {
            return Ok(());
        }
        let old = path.block(at);
        let (level, near) = (old.level() + 1, old.logical());
        let first_key = old.node().first_key().unwrap_or(Key::MIN);
        let child = pointer(first_key, near, old.generation());
        let mut new = self.new_block(level, first_key, near)?;
        NodeMut::new(new.bytes_mut()).insert(0, &[child]);
        let root = TreeRoot {
            tree: self.id(),
            logical: new.logical(),
            level,
            generation: new.generation(),
        };
        if let Held::RootWrite(guard) = &mut path.steps[at - 1].held {
            self.set_root(guard, root);
        }
        path.steps.insert(at, Step { held: Held::Write(new), slot: 0 });
        Ok(())
    }

    /// Splits the node of the last step, whose parent is held and has room, and stays above the child
    /// that the path goes to.
    fn split_node<'t>(&'t self, path: &mut Path<'t>) -> Result<(), ChangeError> {
        let at = path.bottom();
        let (node, slot) = (path.node(at), path.steps[at].slot);
        let count = node.nritems();
        // Keys that ascend always take the last child: leave the left node full behind them.
        let middle = if slot + 1 == count { count - 2 } else { count / 2 };
        let key = node.key(middle);
        let mut right = self.new_block(node.level(), key, path.block(at).logical())?;
        let moved: Vec<KeyPointer> = path.node(at).key_pointers()[middle..].to_vec();
        NodeMut::new(right.bytes_mut()).insert(0, &moved);
        NodeMut::new(path.bytes_mut(at)).remove(middle..count);
        path.add_sibling(at, &right, key);
        if slot >= middle {
            path.step_right(at, right, slot - middle);
        } else {
            path.upper = Some(key);
        }
        self.shared.counters.node_splits.add(1);
        Ok(())
    }

    /// Splits the leaf at the cut and goes to the side where the special item will be.
    fn split_leaf<'t>(
        &'t self,
        path: &mut Path<'t>,
        plan: &Plan,
        cut: usize,
        key: Key,
    ) -> Result<(), ChangeError> {
        let at = path.bottom();
        let (stay, count) = (plan.items_left(cut), path.leaf().node().nritems());
        let right_key = plan.first_key_right(cut, path.leaf().node(), key);
        let mut right = self.new_block(0, right_key, path.leaf().logical())?;
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

    /// Splits the leaf before and behind the special item, which gets a leaf of its own between.
    fn split_leaf_twice<'t>(
        &'t self,
        path: &mut Path<'t>,
        plan: &Plan,
        key: Key,
    ) -> Result<(), ChangeError> {
        let at = path.bottom();
        let (special, count) = (plan.special(), path.leaf().node().nritems());
        let behind = plan.items_left(special + 1);
        let right_key = path.leaf().node().key(behind);
        let near = path.leaf().logical();
        let mut middle = self.new_block(0, key, near)?;
        let mut right = match self.new_block(0, right_key, near) {
            Ok(right) => right,
            Err(error) => {
                self.free(&middle);
                return Err(error);
            }
        };
        let leaf = path.leaf().node();
        copy_items(leaf, behind..count, &mut LeafMut::new(right.bytes_mut()), 0);
        copy_items(leaf, special..behind, &mut LeafMut::new(middle.bytes_mut()), 0);
        path.leaf_mut().remove(special..count);
        path.add_sibling(at, &right, right_key);
        path.add_sibling(at, &middle, key);
        path.step_right(at, middle, 0);
        path.upper = Some(right_key);
        self.shared.counters.double_splits.add(1);
        Ok(())
    }
}
