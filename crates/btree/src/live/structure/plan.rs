//! The content that a leaf will have after a change.
//!
//! A plan counts a new item as if the leaf had it already, and a growing item at its new size. A
//! *cut* says how many of the items, in order of keys, go to the left.

use std::ops::RangeInclusive;

use larder_format::{Key, Node};

use crate::live::bytes::leaf;

/// The items that a leaf will have, in order of keys.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Bytes of each item with its header.
    weights: Vec<usize>,
    /// The place of the new or growing item.
    special: usize,
    /// That item's key.
    key: Key,
    /// Whether the leaf does not have the special item yet.
    is_new: bool,
}

impl Plan {
    /// `bytes` more at `slot` of `leaf`, for the item of `key`: a new item there, or growth of the
    /// one that is there.
    pub(crate) fn new(leaf: Node<'_>, slot: usize, key: Key, bytes: usize, is_new: bool) -> Self {
        let mut weights: Vec<usize> = leaf::weights(leaf).collect();
        if is_new {
            weights.insert(slot, bytes);
        } else {
            weights[slot] += bytes;
        }
        Self { weights, special: slot, key, is_new }
    }

    /// The same with the items of a left sibling before.
    pub(crate) fn after(mut self, left: Node<'_>) -> Self {
        let before: Vec<usize> = leaf::weights(left).collect();
        self.special += before.len();
        self.weights.splice(0..0, before);
        self
    }

    /// The same with the items of a right sibling after.
    pub(crate) fn before(mut self, right: Node<'_>) -> Self {
        self.weights.extend(leaf::weights(right));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.weights.len()
    }

    pub(crate) fn total(&self) -> usize {
        self.weights.iter().sum()
    }

    /// Whether a new item goes after all others.
    pub(crate) fn appends(&self) -> bool {
        self.is_new && self.special + 1 == self.weights.len()
    }

    /// The place of the special item.
    pub(crate) fn special(&self) -> usize {
        self.special
    }

    /// The key of the special item.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The cut among `cuts` after which both sides fit, and are most alike in size.
    pub(crate) fn best_cut(&self, cuts: RangeInclusive<usize>, capacity: usize) -> Option<usize> {
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
    pub(crate) fn is_left(&self, cut: usize) -> bool {
        self.special < cut
    }

    /// How many of the items that are there now go left of the cut.
    pub(crate) fn items_left(&self, cut: usize) -> usize {
        cut - usize::from(self.is_new && self.special < cut)
    }

    /// The first key right of the cut, where `leaf` is the leaf as it is now.
    pub(crate) fn first_key_right(&self, cut: usize, leaf: Node<'_>) -> Key {
        if cut == self.special { self.key } else { leaf.key(self.items_left(cut)) }
    }
}
