//! A balanced tree of ranges in which every node has the largest hole below it, so that one descent
//! finds the lowest hole of a size: as kernels do for address spaces.
//!
//! A treap: ordered by address from left to right, and by a hash of the address from top to bottom.

type Tree = Option<Box<Node>>;

struct Node {
    start: u64,
    end: u64,
    left: Tree,
    right: Tree,
    /// The span of the ranges of this subtree, and the largest hole between two of them.
    first: u64,
    last: u64,
    largest: u64,
}

impl Node {
    fn new(start: u64, end: u64) -> Self {
        Node { start, end, left: None, right: None, first: start, last: end, largest: 0 }
    }

    fn priority(&self) -> u64 {
        let hash = (self.start ^ self.start >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    /// Updates the values for the subtree.
    fn update(&mut self) {
        (self.first, self.last, self.largest) = (self.start, self.end, 0);
        if let Some(left) = &self.left {
            self.first = left.first;
            self.largest = left.largest.max(self.start - left.last);
        }
        if let Some(right) = &self.right {
            self.last = right.last;
            self.largest = self.largest.max(right.largest).max(right.first - self.end);
        }
    }

    #[expect(clippy::unnecessary_box_returns, reason = "it stays where it is")]
    fn updated(mut self: Box<Self>) -> Box<Self> {
        self.update();
        self
    }
}

/// The ranges that begin below `start`, and the others.
fn split(tree: Tree, start: u64) -> (Tree, Tree) {
    let Some(mut node) = tree else { return (None, None) };
    if node.start < start {
        let (left, right) = split(node.right.take(), start);
        node.right = left;
        (Some(node.updated()), right)
    } else {
        let (left, right) = split(node.left.take(), start);
        node.left = right;
        (left, Some(node.updated()))
    }
}

/// One tree of two, whose ranges are in order.
fn join(left: Tree, right: Tree) -> Tree {
    match (left, right) {
        (Some(mut left), Some(right)) if left.priority() > right.priority() => {
            left.right = join(left.right.take(), Some(right));
            Some(left.updated())
        }
        (left @ Some(_), Some(mut right)) => {
            right.left = join(left, right.left.take());
            Some(right.updated())
        }
        (left, right) => left.or(right),
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "the node stays where it is")]
fn insert(tree: Tree, mut new: Box<Node>) -> Box<Node> {
    match tree {
        Some(mut node) if node.priority() > new.priority() => {
            let side = if new.start < node.start { &mut node.left } else { &mut node.right };
            *side = Some(insert(side.take(), new));
            node.updated()
        }
        tree => {
            (new.left, new.right) = split(tree, new.start);
            new.updated()
        }
    }
}

fn remove(tree: &mut Tree, start: u64) -> bool {
    let Some(node) = tree else { return false };
    if node.start == start {
        *tree = join(node.left.take(), node.right.take());
        return true;
    }
    let side = if start < node.start { &mut node.left } else { &mut node.right };
    let found = remove(side, start);
    node.update();
    found
}

/// Ranges that do not overlap, in a space with an end.
pub(super) struct GapTree {
    root: Tree,
    space: u64,
}

impl GapTree {
    pub(super) fn new(space: u64) -> Self {
        GapTree { root: None, space }
    }

    pub(super) fn insert(&mut self, start: u64, end: u64) {
        self.root = Some(insert(self.root.take(), Box::new(Node::new(start, end))));
    }

    pub(super) fn remove(&mut self, start: u64) -> bool {
        remove(&mut self.root, start)
    }

    /// The first address of the lowest hole of `len` or more.
    pub(super) fn lowest_hole(&self, len: u64) -> Option<u64> {
        let (mut from, mut until) = (0, self.space);
        let mut tree = &self.root;
        // In each step the hole, if there is one, is between `from` and `until`, with the rest of
        // the tree in between.
        while let Some(node) = tree {
            if node.first - from >= len {
                break;
            }
            let in_left = node
                .left
                .as_ref()
                .is_some_and(|left| left.largest.max(node.start - left.last) >= len);
            if in_left {
                (tree, until) = (&node.left, node.start);
            } else {
                (tree, from) = (&node.right, node.end);
            }
        }
        let end = tree.as_ref().map_or(until, |node| node.first);
        (end - from >= len).then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn finds_the_hole_that_a_scan_finds() {
        let (mut tree, mut map) = (GapTree::new(4000), BTreeMap::new());
        let mut number = 1u64;
        for _ in 0..3000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = 1 + (number >> 33) % 40;
            let mut from = 0;
            let holes = map.iter().chain([(&4000, &4000)]).map(|(&start, &end)| {
                let hole = (from, start);
                from = end;
                hole
            });
            let lowest = holes.into_iter().find(|(from, until)| until - from >= len);
            assert_eq!(tree.lowest_hole(len), lowest.map(|(from, _)| from));
            match lowest {
                Some((start, _)) if !number.is_multiple_of(3) => {
                    tree.insert(start, start + len);
                    map.insert(start, start + len);
                }
                _ => {
                    let at = (number >> 20) % 4000;
                    let there = map.range(at..).next().map(|(&start, _)| start);
                    assert_eq!(tree.remove(there.unwrap_or(at)), there.is_some());
                    there.map(|start| map.remove(&start));
                }
            }
        }
    }
}
