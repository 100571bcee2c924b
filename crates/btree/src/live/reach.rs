//! At the leaf: what a change needs of the blocks above, and what can be released.
//!
//! *Early release*: an insert that finds room in its leaf, and whose key is greater than the leaf's
//! first, can change nothing above the leaf. It releases the rest before it searches the leaf. A
//! smaller key changes the first keys above; one that was met above is found without a search.

use larder_format::node::max_key_pointers;
use larder_format::{Key, Node};

use super::intent::Intent;
use super::merge::is_small_leaf;
use super::path::Path;
use super::search::{Search, Stop};

/// A node with less than this part of its capacity in pointers should be merged.
const LEAST_NODE_FILL: usize = 4;

/// The least pointers of a node that is left alone.
pub(super) fn least_pointers(nodesize: usize) -> usize {
    max_key_pointers(nodesize) / LEAST_NODE_FILL
}

impl<'t> Search<'t> {
    /// At the leaf: decides what may be released, finds the place, and makes room where it is needed.
    pub(super) fn arrive(&mut self, mut path: Path<'t>, exact: bool) -> Result<Path<'t>, Stop> {
        let leaf = path.leaf().node();
        let free = leaf.leaf_free_space();
        let first = leaf.first_key();
        let becomes_first = first.is_none_or(|first| self.key < first);
        let has_room = free >= self.intent.most_bytes();
        let stays_below = has_room && !self.intent.may_reach_up() && !becomes_first;
        if stays_below && path.holds_parent() && self.tree.shared.policy.early_release {
            self.tree.shared.counters.early_releases.add(1);
            path.release_above_leaf();
        }
        let place = match first {
            _ if exact => Ok(0),
            Some(first) if self.key > first => search_behind_first(path.leaf().node(), self.key),
            Some(first) if self.key == first => Ok(0),
            _ => Err(0),
        };
        let bottom = path.bottom();
        path.found = place.is_ok();
        path.steps[bottom].slot = place.unwrap_or_else(|slot| slot);
        if stays_below {
            path.release_above_leaf();
            return Ok(path);
        }
        self.reach_up(path, free, becomes_first)
    }

    /// What a change needs above its leaf: everything whose first key changes, room for what splits,
    /// or what loses a pointer.
    fn reach_up(
        &mut self,
        mut path: Path<'t>,
        free: usize,
        becomes_first: bool,
    ) -> Result<Path<'t>, Stop> {
        let needed = match self.intent {
            Intent::Read | Intent::Modify => None,
            Intent::Delete { last } => {
                path.count = end_slot(path.leaf().node(), last).saturating_sub(path.slot());
                self.reach_of_delete(&path)
            }
            Intent::DeleteRun => {
                path.count = run_length(path.leaf().node(), path.slot(), self.keys);
                self.reach_of_delete(&path)
            }
            Intent::SetKey => (path.slot() == 0).then(|| path.trace.level_for_first_key()),
            Intent::Merge => self.reach_of_merge(&path),
            Intent::Insert { .. }
            | Intent::Put { .. }
            | Intent::Replace { .. }
            | Intent::Grow { .. }
            | Intent::Duplicate => {
                return self.reach_of_growth(path, free, becomes_first);
            }
        };
        match needed {
            Some(level) if !path.holds(level) => Err(Stop::Restart { level }),
            Some(_) => Ok(path),
            None => {
                path.release_above_leaf();
                Ok(path)
            }
        }
    }

    fn reach_of_growth(
        &mut self,
        mut path: Path<'t>,
        free: usize,
        becomes_first: bool,
    ) -> Result<Path<'t>, Stop> {
        let Some(bytes) = self.intent.bytes_at(&path) else {
            path.release_above_leaf();
            return Ok(path);
        };
        if becomes_first && path.trace.root_level() > 0 {
            let level = path.trace.root_level();
            if !path.holds(level) {
                return Err(Stop::Restart { level });
            }
        }
        if path.found {
            let len_bytes = path.leaf().node().item_data(path.slot()).len() + bytes;
            self.tree.check_len(self.key, len_bytes)?;
        }
        if bytes > free {
            if !self.split || !path.holds_parent() {
                self.split = true;
                return Err(Stop::Restart { level: path.trace.level_for_split() });
            }
            self.make_room(&mut path, bytes)?;
        }
        if !becomes_first {
            path.release_above_leaf();
        }
        Ok(path)
    }

    /// The level up to which removing the path's items changes blocks.
    fn reach_of_delete(&self, path: &Path<'t>) -> Option<u8> {
        if path.count == 0 || path.trace.root_level() == 0 {
            None
        } else if path.count == path.leaf().node().nritems() {
            Some(path.trace.level_for_removal(least_pointers(self.tree.shared.nodesize())))
        } else {
            (path.slot() == 0).then(|| path.trace.level_for_first_key())
        }
    }

    fn reach_of_merge(&self, path: &Path<'t>) -> Option<u8> {
        let is_small = is_small_leaf(path.leaf().node());
        (is_small && path.trace.root_level() > 0)
            .then(|| path.trace.level_for_removal(least_pointers(self.tree.shared.nodesize())))
    }
}

/// The slot of `key`, which is greater than the leaf's first, or where it would be inserted.
pub(super) fn search_behind_first(leaf: Node<'_>, key: Key) -> Result<usize, usize> {
    let items = &leaf.items()[1..];
    let found = items.binary_search_by(|item| item.key.get().cmp(&key));
    found.map(|slot| slot + 1).map_err(|slot| slot + 1)
}

/// How many of `keys` are the keys of a leaf's items from `slot` on.
pub(super) fn run_length(leaf: Node<'_>, slot: usize, keys: &[Key]) -> usize {
    leaf.items()[slot..].iter().zip(keys).take_while(|(item, key)| item.key.get() == **key).count()
}

/// The first slot of a leaf whose key is greater than `last`.
pub(super) fn end_slot(leaf: Node<'_>, last: Key) -> usize {
    leaf.items().partition_point(|item| item.key.get() <= last)
}
