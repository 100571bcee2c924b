//! Removing items.

use std::ops::RangeInclusive;

use larder_format::Key;

use super::error::ChangeError;
use super::intent::Intent;
use super::merge::is_small_leaf;
use super::node::NodeMut;
use super::path::{Held, Path};
use super::search::Search;
use super::tree::LiveTree;
use crate::root::TreeRoot;

impl LiveTree {
    /// Removes the item with this key; whether there was one.
    pub fn delete(&self, key: Key) -> Result<bool, ChangeError> {
        Ok(self.delete_range(key..=key)? > 0)
    }

    /// Removes all items whose keys lie in `range`, leaf by leaf, and returns how many there were.
    /// After an error those before some key are gone.
    pub fn delete_range(&self, range: RangeInclusive<Key>) -> Result<u64, ChangeError> {
        let (mut first, last) = range.into_inner();
        let mut removed = 0;
        while first <= last {
            let path = Search::new(self, first, Intent::Delete { last }).run()?;
            removed += path.count as u64;
            let next = path.upper;
            self.remove_items(path, first);
            match next {
                Some(next) if next > first => first = next,
                _ => break,
            }
        }
        Ok(removed)
    }

    /// Removes the items with these keys, which ascend, and returns how many there were. Items that
    /// follow each other in a leaf go in one descent. After an error those before some key are gone.
    pub fn delete_batch(&self, keys: &[Key]) -> Result<u64, ChangeError> {
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(ChangeError::OutOfOrder { tree: self.id(), key: pair[1] });
        }
        let mut removed = 0;
        let mut rest = keys;
        while let Some(&first) = rest.first() {
            let path = Search::deleting(self, rest).run()?;
            removed += path.count as u64;
            // A key that is not there is passed over alone.
            rest = &rest[path.count.max(1)..];
            self.remove_items(path, first);
        }
        Ok(removed)
    }

    /// Removes the path's items, of which `first` is the first key, and tidies up after it.
    fn remove_items(&self, mut path: Path<'_>, first: Key) {
        if path.count == 0 {
            return;
        }
        let leaf = path.leaf().node();
        let (slot, all) = (path.slot(), path.count == leaf.nritems());
        let was_small = is_small_leaf(leaf);
        let slots = slot..slot + path.count;
        path.leaf_mut().remove(slots);
        if all && path.trace.root_level() > 0 {
            self.remove_block(&mut path);
            return;
        }
        if slot == 0 {
            path.fix_first_keys(path.bottom());
        }
        let is_small = is_small_leaf(path.leaf().node());
        drop(path);
        if is_small && !was_small {
            self.merge_if_small(first);
        }
    }

    /// Removes the last step's block, which is empty, from its parent, and what becomes empty, small
    /// or superfluous by that.
    pub(super) fn remove_block(&self, path: &mut Path<'_>) {
        let bottom = path.bottom();
        // A chain of blocks with one child each, from the root down, leaves nothing but the leaf.
        let only = |at: usize| match path.steps[at].held.block() {
            Some(block) => block.node().nritems() == 1,
            None => true,
        };
        if (0..bottom).all(only) && matches!(path.steps[0].held, Held::RootWrite(_)) {
            for at in 1..bottom {
                self.free(path.block(at));
            }
            self.make_root(path, bottom);
            return;
        }
        let mut at = bottom;
        loop {
            self.free(path.block(at));
            self.shared.counters.removals.add(1);
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
        self.shrink(path, at);
    }

    /// Merges the node of step `at`, the last, if it has lost too many pointers, and what loses by
    /// that in turn; takes away a root that has one child only.
    pub(super) fn shrink(&self, path: &mut Path<'_>, at: usize) {
        let mut at = at;
        while at > 0 && path.steps[at - 1].held.block().is_some() {
            if !self.merge_node(path, at) {
                break;
            }
            at -= 1;
        }
        if matches!(path.steps[0].held, Held::RootWrite(_)) && path.steps.len() == 2 {
            self.lower_root(path);
        }
    }

    /// If the root, the path's last step, is a node with one child: makes that child the root.
    fn lower_root(&self, path: &mut Path<'_>) {
        let node = path.node(1);
        if node.is_leaf() || node.nritems() > 1 {
            return;
        }
        let pointer = node.key_pointers()[0];
        let root = TreeRoot {
            tree: self.id(),
            logical: pointer.blockptr(),
            level: node.level() - 1,
            generation: pointer.generation.get(),
        };
        self.free(path.block(1));
        path.steps.truncate(1);
        if let Held::RootWrite(guard) = &mut path.steps[0].held {
            self.set_root(guard, root);
        }
    }

    /// Makes the block of step `at` the root; the root pointer is held.
    fn make_root(&self, path: &mut Path<'_>, at: usize) {
        let block = path.block(at);
        let root = TreeRoot {
            tree: self.id(),
            logical: block.logical(),
            level: block.level(),
            generation: block.generation(),
        };
        if let Held::RootWrite(guard) = &mut path.steps[0].held {
            self.set_root(guard, root);
        }
    }
}
