//! Removing items.

use std::ops::RangeInclusive;

use larder_format::Key;

use super::live_tree::LiveTree;
use crate::live::error::ChangeError;
use crate::live::path::path::Path;
use crate::live::search::search::Search;
use crate::live::search::target::Intent;
use crate::live::structure::merge::is_small_leaf;
use crate::live::structure::shrink::{merge_small_leaf, remove_block};

impl LiveTree {
    /// Removes the item with this key; whether there was one.
    pub fn delete(&self, key: Key) -> Result<bool, ChangeError> {
        Ok(self.delete_range(key..=key)? > 0)
    }

    /// Removes all items whose keys lie in `range`, leaf by leaf, and returns how many there were.
    /// After an error, the items up to some key are gone.
    pub fn delete_range(&self, range: RangeInclusive<Key>) -> Result<u64, ChangeError> {
        let (mut first, last) = range.into_inner();
        let mut removed = 0;
        while first <= last {
            let path = Search::new(&self.state, first, Intent::Delete { last }).run()?;
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

    /// Removes the items with these keys, which ascend, and returns how many there were. One
    /// descent removes items that follow each other in a leaf. After an error, the items up to
    /// some key are gone.
    pub fn delete_batch(&self, keys: &[Key]) -> Result<u64, ChangeError> {
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(ChangeError::OutOfOrder { tree: self.id(), key: pair[1] });
        }
        let mut removed = 0;
        let mut rest = keys;
        while let Some(&first) = rest.first() {
            let path = Search::new(&self.state, first, Intent::DeleteRun { keys: rest }).run()?;
            removed += path.count as u64;
            // A descent that finds no item passes over one key.
            rest = &rest[path.count.max(1)..];
            self.remove_items(path, first);
        }
        Ok(removed)
    }

    /// Removes the path's items, the first of which has the key `first`, and then merges or
    /// removes the leaf if it must.
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
            remove_block(&mut path);
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

    /// Merges the leaf of `key` with a neighbour if it is small and that is easy. The change that
    /// made it small has succeeded: if this fails, the next search that needs the block meets the
    /// error.
    pub(super) fn merge_if_small(&self, key: Key) {
        if let Ok(mut path) = Search::new(&self.state, key, Intent::Merge).run() {
            merge_small_leaf(&mut path);
        }
    }
}
