//! Structure: nodes split, entries move to the left neighbour, dead nodes leave the list.
//!
//! Invariants
//! - Moving entries changes no content. The receiving block is published first, with the bounds
//!   over it, and the giving block last; in between both show the same entries, and both are
//!   locked, so that readers may use either and writers neither.
//! - A node that has given all its entries away leaves level 0, then it is marked dead, so that a
//!   search which a dead node sends back does not meet it again; then its tower is closed and
//!   it leaves the other levels from the top; then it is retired. Its left neighbour stays locked
//!   throughout, so neither that nor the right neighbour can be retired earlier: what a dead
//!   node points to stays good for every thread that can still reach that node.
//! - A tower is locked from before its node can be seen until all its links are in place.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use crate::Value;
use crate::block::{BlockRef, Builder};
use crate::heights::height_for;
use crate::node::{self, BlockLock, NodeRef};
use crate::reclaim::{retire_block, retire_node};
use crate::skip_list::SkipList;
use crate::stats::Held;
use crate::sync::{Ordering, Wait};

impl<V: Value, const KEYS: usize> SkipList<V, KEYS> {
    /// Ends an operation on a locked node: splits it until no block is too large, and unlocks it.
    pub(crate) fn split(&self, lock: BlockLock<'_, V>, guard: &Guard) {
        if lock.block(guard).len() <= KEYS {
            return;
        }
        let held = Held::new(&self.stats);
        let mut towers: SmallVec<[(NodeRef<'_, V>, u64); 1]> = SmallVec::new();
        while lock.block(guard).len() > KEYS {
            let right = self.split_off(&lock, guard);
            if right.height() > 1 {
                towers.push((right, lock.block(guard).high()));
            }
        }
        drop(lock);
        drop(held);
        for (right, low) in towers {
            self.link_tower(right, low, guard);
        }
    }

    /// Moves the upper part of a locked node to a new node after it. If the new node has links
    /// above level 0, its tower stays locked until `link_tower` puts them in place.
    fn split_off<'g>(&self, lock: &BlockLock<'g, V>, guard: &'g Guard) -> NodeRef<'g, V> {
        let (node, block) = (lock.node(), lock.block(guard));
        let len = block.len();
        // After a large gathering, full blocks from the right end. The last tile keeps most of its
        // entries, since an index that is filled in ascending order grows there. Otherwise halves.
        let keep = match len {
            _ if len > 2 * KEYS => len - KEYS,
            _ if block.high() == u64::MAX => len - len.div_ceil(8),
            _ => len / 2,
        };
        let middle = block.key(keep);
        let mut upper = Builder::new(middle..block.high(), len - keep);
        upper.extend(block, keep..len);
        let mut lower = Builder::new(block.low()..middle, keep);
        lower.extend(block, 0..keep);

        let height = height_for(&self.path(middle, guard), middle, guard);
        self.top.fetch_max(height - 1, Ordering::SeqCst);
        let raw = node::allocate(&self.slabs, height, upper.finish());
        // SAFETY: just allocated, and retired like any node from the moment it is linked.
        let right = unsafe { NodeRef::from_raw(raw) }.expect("an allocated node");
        let right_lock = right.try_lock(right.word()).expect("no other thread knows the new node");
        if height > 1 {
            right.lock_tower(|| unreachable!("no other thread knows the new node"));
        }

        right.set_prev(node);
        right.link(0).copy_from(node.link(0));
        node.link(0).insert(right, middle);
        if let Some(next) = right.link(0).next(guard) {
            next.set_prev(right);
        }
        lock.publish(lower.finish());
        drop(right_lock);
        retire_block(block, guard);
        right
    }

    /// Puts the links above level 0 to `node` in place and unlocks its tower. `low` is where its
    /// tile began when its tower was locked, which is what links to it say.
    fn link_tower(&self, node: NodeRef<'_, V>, low: u64, guard: &Guard) {
        for level in 1..node.height() {
            let mut wait = Wait::new();
            loop {
                let pred = self.predecessor(low - 1, level, guard);
                if pred.lock_tower(|| self.stats.blocked()) {
                    let link = pred.link(level);
                    debug_assert!(pred.block(guard).is_none_or(|block| block.low() < low));
                    let fits = link.key() > low;
                    if fits {
                        node.link(level).copy_from(link);
                        link.insert(node, low);
                    }
                    pred.unlock_tower();
                    if fits {
                        break;
                    }
                }
                wait.pause();
            }
        }
        node.unlock_tower();
    }

    /// Changes the link to `node` at `level`, under the tower lock of the node it comes from. `low`
    /// is where links say that the tile of `node` begins; the tower lock of `node` is held, or
    /// closed, by the caller.
    fn with_link_to(
        &self,
        node: NodeRef<'_, V>,
        level: usize,
        low: u64,
        guard: &Guard,
        change: impl Fn(&node::Link<V>),
    ) {
        let mut wait = Wait::new();
        loop {
            let pred = self.predecessor(low - 1, level, guard);
            if pred.lock_tower(|| self.stats.blocked()) {
                let link = pred.link(level);
                let found = link.next(guard) == Some(node);
                if found {
                    change(link);
                }
                pred.unlock_tower();
                if found {
                    return;
                }
            }
            wait.pause();
        }
    }

    /// Moves at least the entries that begin below `until` from the right neighbour into the
    /// locked node `left`, whose tile ends before `until`.
    pub(crate) fn absorb<'g>(&self, left: &BlockLock<'g, V>, until: u64, guard: &'g Guard) {
        let held = Held::new(&self.stats);
        let block = left.block(guard);
        let right = left.node().link(0).next(guard).expect("a tile that ends has a neighbour");
        let right = self.lock_neighbour(right, guard);
        let given = right.block(guard);
        debug_assert_eq!(given.low(), block.high(), "tiles have no gaps between them");

        // Taking up to half a node at once saves the next caller from coming here again.
        let wanted = given.keys().partition_point(|&key| key < until);
        let count = wanted.max(given.len().min((KEYS / 2).saturating_sub(block.len())));
        let all = count == given.len();
        let middle = if all { given.high() } else { given.key(count) };

        // Everything that can panic comes before anything that can be seen.
        let mut grown = Builder::new(block.low()..middle, block.len() + count);
        grown.extend(block, 0..block.len());
        grown.extend(given, 0..count);
        let mut rest = Builder::new(middle..given.high(), given.len() - count);
        rest.extend(given, count..given.len());

        left.publish(grown.finish());
        let hole = given.largest_hole(1..count + 1);
        if hole > 0 {
            // Links still say that the moved entries are to the right, so the search starts from
            // the node that had them before.
            self.raise_bounds(left.node(), None, block.high() - 1, hole, guard);
        }
        if all {
            self.remove_node(left.node(), right, given.low(), guard);
        } else {
            self.move_low(left.node(), right.node(), given.low(), middle, guard);
            right.publish_and_unlock(rest.finish());
        }
        retire_block(block, guard);
        retire_block(given, guard);
        drop(held);
    }

    /// Takes the block lock of the right neighbour of a node whose block lock the caller holds.
    fn lock_neighbour<'g>(&self, right: NodeRef<'g, V>, guard: &'g Guard) -> BlockLock<'g, V> {
        loop {
            let word = right.word();
            debug_assert!(word.block(guard).is_some(), "only the left neighbour lets a node die");
            if word.is_locked() {
                self.wait_for_unlock(right);
            } else if let Some(lock) = right.try_lock(word) {
                return lock;
            }
        }
    }

    /// Tells every link to `right` that its tile will begin at `to` instead of `from`.
    fn move_low(
        &self,
        left: NodeRef<'_, V>,
        right: NodeRef<'_, V>,
        from: u64,
        to: u64,
        guard: &Guard,
    ) {
        let open = right.lock_tower(|| self.stats.blocked());
        debug_assert!(open, "the tower of a live node");
        for level in 1..right.height() {
            self.with_link_to(right, level, from, guard, |link| link.set_key(to));
        }
        left.link(0).set_key(to);
        right.unlock_tower();
    }

    /// Takes a node out of the list and retires it, after its left neighbour `left`, which is
    /// locked, has taken over its tile.
    fn remove_node<'g>(
        &self,
        left: NodeRef<'g, V>,
        lock: BlockLock<'g, V>,
        low: u64,
        guard: &'g Guard,
    ) {
        let dead = lock.node();
        left.link(0).copy_from(dead.link(0));
        if let Some(next) = dead.link(0).next(guard) {
            next.set_prev(left);
        }
        lock.die();

        let open = dead.lock_tower(|| self.stats.blocked());
        debug_assert!(open, "a node dies once");
        dead.close_tower();
        for level in (1..dead.height()).rev() {
            self.with_link_to(dead, level, low, guard, |link| {
                link.bound.set_unknown();
                link.copy_from(dead.link(level));
            });
        }
        retire_node(dead, Arc::clone(&self.slabs), guard);
    }

    /// Moves the entries of `node`, whose tile began at `low`, to its left neighbour if both are
    /// sparse. Does nothing when the neighbourhood has changed.
    pub(crate) fn merge_into_left(&self, node: NodeRef<'_, V>, low: u64, guard: &Guard) {
        let both_sparse = |left: BlockRef<'_, V>, right: BlockRef<'_, V>| {
            left.high() == right.low() && left.len() + right.len() <= KEYS / 4 * 3
        };
        let left = node.prev(guard).and_then(|left| left.block(guard));
        let Some((left, right)) = left.zip(node.block(guard)) else { return };
        if !both_sparse(left, right) {
            return;
        }
        let lock = self.lock_block(low - 1, guard);
        if lock.node().link(0).next(guard) == Some(node)
            && let Some(right) = node.block(guard)
            && both_sparse(lock.block(guard), right)
        {
            self.absorb(&lock, right.high(), guard);
        }
        self.split(lock, guard);
    }
}
