//! At the leaf: which blocks above a change needs, and which ones the thread can release.
//!
//! *Early release*: an insert that finds room in its leaf, and whose key is greater than the leaf's
//! first, can change nothing above the leaf. The thread releases the blocks above before it
//! searches the leaf. A smaller key changes the first keys above. A key that the descent met above
//! is the leaf's first, and needs no search.

use larder_format::{Key, Node};

use super::stop::Stop;
use super::target::{Intent, Target};
use crate::live::path::path::Path;
use crate::live::structure::merge::{is_small_leaf, least_pointers};
use crate::live::structure::plan::Plan;
use crate::live::structure::split::make_room;

/// A search that has reached its leaf.
pub(super) struct Arrival<'s, 'k> {
    pub(super) target: &'s Target<'k>,
    /// Whether the nodes on the way have room for the pointers that a split of the leaf adds.
    pub(super) may_split: bool,
}

impl Arrival<'_, '_> {
    /// Decides what the thread may release, finds the place, and makes room where the change needs
    /// it. `exact` says that the key is the leaf's first.
    pub(super) fn finish<'t>(&self, mut path: Path<'t>, exact: bool) -> Result<Path<'t>, Stop> {
        let (forest, Target { key, intent }) = (&path.tree.forest, *self.target);
        let leaf = path.leaf().node();
        let free = leaf.leaf_free_space();
        let first = leaf.first_key();
        let becomes_first = first.is_none_or(|first| key < first);
        let has_room = free >= intent.most_bytes();
        let stays_below = has_room && !intent.may_reach_up() && !becomes_first;
        if stays_below && path.holds_parent() && forest.policy.releases_early() {
            forest.counters.early_releases.add(1);
            path.release_above_leaf();
        }
        let place = match first {
            _ if exact => Ok(0),
            Some(first) if key > first => search_after_first(path.leaf().node(), key),
            Some(first) if key == first => Ok(0),
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

    /// Makes sure that the path holds all blocks that the change needs above the leaf: those whose
    /// first key changes, those that must have room for a split, or those that lose a pointer.
    fn reach_up<'t>(
        &self,
        mut path: Path<'t>,
        free: usize,
        becomes_first: bool,
    ) -> Result<Path<'t>, Stop> {
        let needed = match self.target.intent {
            Intent::Read | Intent::Modify => None,
            Intent::Delete { .. } | Intent::DeleteRun { .. } => {
                path.count = self.target.intent.removals_at(&path);
                reach_of_delete(&path)
            }
            Intent::SetKey => (path.slot() == 0).then(|| path.trace.level_for_first_key()),
            Intent::Merge => reach_of_merge(&path),
            Intent::Insert { .. }
            | Intent::Put { .. }
            | Intent::Replace { .. }
            | Intent::Grow { .. }
            | Intent::Duplicate => return self.grow(path, free, becomes_first),
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

    /// Makes room for a change that takes bytes, once the path holds all that it needs.
    fn grow<'t>(
        &self,
        mut path: Path<'t>,
        free: usize,
        becomes_first: bool,
    ) -> Result<Path<'t>, Stop> {
        let Target { key, intent } = *self.target;
        let Some(bytes) = intent.bytes_at(&path) else {
            path.release_above_leaf();
            return Ok(path);
        };
        let level = path.trace.root_level();
        if becomes_first && level > 0 && !path.holds(level) {
            return Err(Stop::Restart { level });
        }
        if path.found {
            let len_bytes = path.leaf().node().item_data(path.slot()).len() + bytes;
            path.tree.check_len(key, len_bytes)?;
        }
        if bytes > free {
            if !self.may_split || !path.holds_parent() {
                return Err(Stop::RestartToSplit { level: path.trace.level_for_split() });
            }
            let is_new = match intent {
                Intent::Insert { .. } => true,
                Intent::Put { .. } => !path.found,
                _ => false,
            };
            let plan = Plan::new(path.leaf().node(), path.slot(), key, bytes, is_new);
            make_room(&mut path, &plan)?;
        }
        if !becomes_first {
            path.release_above_leaf();
        }
        Ok(path)
    }
}

/// The level up to which removing the path's items changes blocks.
fn reach_of_delete(path: &Path<'_>) -> Option<u8> {
    if path.count == 0 || path.trace.root_level() == 0 {
        None
    } else if path.count == path.leaf().node().nritems() {
        Some(level_for_removal(path))
    } else {
        (path.slot() == 0).then(|| path.trace.level_for_first_key())
    }
}

/// The level up to which merging the leaf changes blocks, if the leaf is small.
fn reach_of_merge(path: &Path<'_>) -> Option<u8> {
    let is_small = is_small_leaf(path.leaf().node());
    (is_small && path.trace.root_level() > 0).then(|| level_for_removal(path))
}

fn level_for_removal(path: &Path<'_>) -> u8 {
    path.trace.level_for_removal(least_pointers(path.tree.forest.nodesize()))
}

/// The slot of `key`, which is greater than the leaf's first, or the slot for a new item of it.
pub(super) fn search_after_first(leaf: Node<'_>, key: Key) -> Result<usize, usize> {
    let items = &leaf.items()[1..];
    let found = items.binary_search_by(|item| item.key.get().cmp(&key));
    found.map(|slot| slot + 1).map_err(|slot| slot + 1)
}
