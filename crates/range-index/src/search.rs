//! Searches: from the head of the list to the node whose tile holds an address, without locks.
//!
//! A descent compares link keys only, which may be momentarily out of date. It never follows a
//! link to a node that begins further right than the link's key. What decides is the
//! tile in the block where the descent ends: an address to its left is reached over back links,
//! an address to its right over level 0. At every moment at least one live block has a tile with
//! that address, so a search repeats only when some writer has made progress.

use crossbeam_epoch::Guard;

use crate::Value;
use crate::block::BlockRef;
use crate::node::{NodeRef, Word};
use crate::skip_list::SkipList;
use crate::slabs::MAX_HEIGHT;

/// The node whose tile held an address, and the block it had at that moment.
pub(crate) struct Spot<'g, V> {
    pub(crate) node: NodeRef<'g, V>,
    pub(crate) word: Word<V>,
    pub(crate) block: BlockRef<'g, V>,
}

/// At every level the last node that begins at or before an address.
pub(crate) struct Path<'g, V> {
    nodes: [NodeRef<'g, V>; MAX_HEIGHT],
}

impl<'g, V> Path<'g, V> {
    pub(crate) fn at(&self, level: usize) -> NodeRef<'g, V> {
        self.nodes[level]
    }
}

/// The node whose tile holds `point`, which is below `u64::MAX`, looked for from a node nearby.
pub(crate) fn locate_near<'g, V>(
    near: NodeRef<'g, V>,
    point: u64,
    guard: &'g Guard,
) -> Spot<'g, V> {
    debug_assert!(point < u64::MAX, "the last address is never inside a tile");
    let mut node = near;
    loop {
        let word = node.word();
        word.prefetch();
        let step = match word.block(guard) {
            None => node.prev(guard),
            Some(block) if point < block.low() => node.prev(guard),
            Some(block) if point >= block.high() => node.link(0).next(guard),
            Some(block) => return Spot { node, word, block },
        };
        // No such neighbour any more: this node has taken over its tile; look again.
        node = step.unwrap_or(node);
    }
}

impl<V: Value, const KEYS: usize> SkipList<V, KEYS> {
    /// The last node at `level` that begins at or before `point`, as far as links know. `passed`
    /// is told each node from which the descent goes down a level.
    fn descend<'g>(
        &self,
        point: u64,
        level: usize,
        guard: &'g Guard,
        mut passed: impl FnMut(usize, NodeRef<'g, V>),
    ) -> NodeRef<'g, V> {
        let mut node = self.head(guard);
        for level in (level..=self.top()).rev() {
            loop {
                // SAFETY: a link of this level led here, and the head is as high as towers get.
                let link = unsafe { node.link_unchecked(level) };
                if point < link.key() {
                    break;
                }
                match link.target(guard) {
                    (key, Some(next)) if point >= key => node = next,
                    _ => break,
                }
            }
            passed(level, node);
        }
        node
    }

    /// The node whose tile holds `point`, which is below `u64::MAX`.
    pub(crate) fn locate<'g>(&self, point: u64, guard: &'g Guard) -> Spot<'g, V> {
        locate_near(self.descend(point, 0, guard, |_, _| {}), point, guard)
    }

    /// The last node at `level` that begins at or before `point`.
    pub(crate) fn predecessor<'g>(
        &self,
        point: u64,
        level: usize,
        guard: &'g Guard,
    ) -> NodeRef<'g, V> {
        self.descend(point, level, guard, |_, _| {})
    }

    /// [`SkipList::predecessor`] at all levels at once.
    pub(crate) fn path<'g>(&self, point: u64, guard: &'g Guard) -> Path<'g, V> {
        let mut path = Path { nodes: [self.head(guard); MAX_HEIGHT] };
        self.descend(point, 0, guard, |level, node| path.nodes[level] = node);
        path
    }
}
