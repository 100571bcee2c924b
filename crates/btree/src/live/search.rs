//! Finding the leaf for a change, with as few locks as the change needs.
//!
//! A descent locks each block before it releases the one above (coupling). Down to
//! `write_below` it takes write locks, above it read locks. It starts low; where it finds that a
//! block above must change too (a copy, a split, a removal), it lets go of everything and begins
//! again with write locks from exactly that block down. Each new beginning locks more, so there are
//! few.
//!
//! *Early release*: an insert that finds room in its leaf, and whose key is greater than the leaf's
//! first, can change nothing above the leaf. It releases the rest before it searches the leaf.
//!
//! No lock is held while a block is read: the descent lets go, reads, and begins again.

use larder_format::node::max_key_pointers;
use larder_format::{Key, Node};

use super::error::ChangeError;
use super::forest::InMemory;
use super::leaf::weight;
use super::merge::is_small_leaf;
use super::node::NodeMut;
use super::path::{Held, Path, ROOT_POINTER_LEVEL};
use super::tree::LiveTree;
use crate::block::{Block, Expected};
use crate::error::TreeError;
use crate::lock::WriteGuard;
use crate::readahead::LiveWindow;
use crate::tree::{TreeRoot, check_upper, child_upper};

/// What a leaf is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// Reading.
    Read,
    /// Changing an item without making it longer.
    Modify,
    /// A new item, or several in a row, of so many bytes with their headers.
    Insert { bytes: usize },
    /// An item of this length, new or in place of the one that is there.
    Put { len: usize },
    /// Making the item longer by so many bytes, or splitting it with so many more.
    Grow { bytes: usize },
    /// A copy of the item, next to it.
    Duplicate,
    /// Removing items from the key to this one.
    Delete { last: Key },
    /// Giving the item another key.
    SetKey,
    /// Merging the leaf with a neighbour if it has become small.
    Merge,
}

/// Why a descent ended above the leaf, or without what it needs.
pub(super) enum Stop {
    /// It needs write locks up to this level.
    Restart { level: u8 },
    /// It needs a block that is not in memory.
    Read(Wanted),
    /// It cannot go on.
    Failed(ChangeError),
}

impl<E: Into<ChangeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A block that is not in memory, and where it hangs.
pub(super) struct Wanted {
    expected: Expected,
    upper: Option<Key>,
    /// The parent as it was and the slot there, unless the block is a root.
    parent: Option<(Block, usize)>,
}

/// A node with less than this part of its capacity in pointers should be merged.
const LEAST_NODE_FILL: usize = 4;

/// The least pointers of a node that is left alone.
pub(super) fn least_pointers(nodesize: usize) -> usize {
    max_key_pointers(nodesize) / LEAST_NODE_FILL
}

/// A search for `key` in a tree.
pub(super) struct Search<'t> {
    pub(super) tree: &'t LiveTree,
    pub(super) key: Key,
    pub(super) intent: Intent,
    /// Levels below this one are write-locked.
    write_below: u8,
    /// Whether full nodes on the way are split, because the leaf will be.
    split: bool,
    /// Blocks that were read for this search, so that it cannot lose them to eviction again.
    fetched: Vec<Block>,
    /// What reads siblings ahead.
    window: Option<&'t mut LiveWindow>,
}

/// A block that a pointer leads to, and that pointer.
struct Child {
    block: InMemory,
    expected: Expected,
}

impl<'t> Search<'t> {
    pub(super) fn new(tree: &'t LiveTree, key: Key, intent: Intent) -> Self {
        let first = tree.shared.policy.first_write_level;
        let write_below = match intent {
            Intent::Read => 0,
            Intent::Insert { .. } | Intent::Put { .. } => 1 + first,
            _ => 1,
        };
        Self { tree, key, intent, write_below, split: false, fetched: Vec::new(), window: None }
    }

    /// A search that reads, and reads ahead.
    pub(super) fn reading(tree: &'t LiveTree, key: Key, window: &'t mut LiveWindow) -> Self {
        Self { window: Some(window), ..Self::new(tree, key, Intent::Read) }
    }

    /// As [`run`](Self::run), for searches that only read.
    pub(super) fn run_read(self) -> Result<Path<'t>, TreeError> {
        debug_assert_eq!(self.intent, Intent::Read);
        self.run().map_err(|error| match error {
            ChangeError::Tree(error) => error,
            error => unreachable!("reading changes nothing: {error}"),
        })
    }

    /// Runs until the leaf is held as its intent wants it.
    pub(super) fn run(mut self) -> Result<Path<'t>, ChangeError> {
        let counters = &self.tree.shared.counters;
        loop {
            match self.descend() {
                Ok(path) => return Ok(path),
                Err(Stop::Restart { level }) => {
                    counters.restarts.add(1);
                    self.write_below = self.write_below.max(level + 1);
                }
                Err(Stop::Read(wanted)) => {
                    counters.read_restarts.add(1);
                    self.fetch(&wanted)?;
                }
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
    }

    /// Reads a block, with no lock held.
    fn fetch(&mut self, wanted: &Wanted) -> Result<(), TreeError> {
        let cache = &self.tree.shared.cache;
        if let (Some(window), Some((parent, slot))) = (&mut self.window, &wanted.parent) {
            window.before_read(cache, parent, *slot);
        }
        let read = cache.read(&wanted.expected);
        self.fetched.push(read.map_err(|error| error.with_upper(wanted.upper))?.block);
        Ok(())
    }

    fn descend(&mut self) -> Result<Path<'t>, Stop> {
        let (root, expected) = self.hold_root();
        let mut path = Path::new(root);
        let mut child = self.find(expected, None, None)?;
        // Whether the key was met above: then it is the first of every block from there down.
        let mut exact = false;
        loop {
            let held = self.hold(&mut path, child)?;
            path.push(held);
            let at = path.bottom();
            let node = path.node(at);
            if node.is_leaf() {
                return self.arrive(path, exact);
            }
            let slot = match exact {
                true => 0,
                false => {
                    let found = node.search(self.key);
                    exact = found.is_ok();
                    found.unwrap_or_else(|slot| slot.saturating_sub(1))
                }
            };
            path.note(slot, |block| self.tree.may_change(block));
            if self.split {
                self.make_room_for_pointers(&mut path)?;
            }
            let at = path.bottom();
            let (parent, slot) = (path.block(at), path.steps[at].slot);
            let upper = child_upper(parent, slot, path.upper);
            let expected = Expected::child(self.tree.id(), parent.node(), slot);
            child = self.find(expected, upper, Some((parent, slot)))?;
            path.upper = upper;
        }
    }

    fn hold_root(&self) -> (Held<'t>, Expected) {
        if self.write_below > ROOT_POINTER_LEVEL {
            let root = self.tree.write_root();
            let expected = (*root).into();
            (Held::RootWrite(root), expected)
        } else {
            let root = self.tree.read_root();
            let expected = (*root).into();
            (Held::RootRead(root), expected)
        }
    }

    /// Finds a block in memory. Keys of a block that was read must end below `upper`.
    fn find(
        &self,
        expected: Expected,
        upper: Option<Key>,
        parent: Option<(&Block, usize)>,
    ) -> Result<Child, Stop> {
        let is_it = |block: &&Block| {
            block.logical() == expected.logical && block.generation() == expected.generation
        };
        let block = match self.tree.shared.in_memory(&expected) {
            Some(block) => block,
            None => match self.fetched.iter().find(is_it) {
                Some(block) => InMemory::Clean(block.clone()),
                None => {
                    let parent = parent.map(|(block, slot)| (block.clone(), slot));
                    return Err(Stop::Read(Wanted { expected, upper, parent }));
                }
            },
        };
        if let InMemory::Clean(block) = &block {
            check_upper(&expected, block, upper)?;
        }
        Ok(Child { block, expected })
    }

    /// Locks a child of the path's last step as its level asks for, copying it before it may change.
    fn hold(&self, path: &mut Path<'t>, child: Child) -> Result<Held<'t>, Stop> {
        let (tree, counters) = (self.tree.id(), &self.tree.shared.counters.locks);
        let key = child.expected.first_key.unwrap_or(Key::MIN);
        if child.expected.level >= self.write_below {
            return Ok(match child.block {
                InMemory::Clean(block) => Held::Clean(block),
                InMemory::Live(live) => Held::Read(live.read(tree, key, counters)),
            });
        }
        let old = match child.block {
            InMemory::Live(live) if self.tree.is_own(live.generation) => {
                let guard = live.write(tree, key, counters);
                if self.tree.may_change(&guard) {
                    return Ok(Held::Write(guard));
                }
                guard.clone()
            }
            InMemory::Live(live) => live.read(tree, key, counters).clone(),
            InMemory::Clean(block) => block,
        };
        let bottom = path.bottom();
        if !path.steps[bottom].held.is_write() {
            return Err(Stop::Restart { level: path.trace.level_for_copy() });
        }
        let new = self.tree.copy(&old)?;
        self.tree.replace_child(path, bottom, &new);
        Ok(Held::Write(new))
    }

    /// At the leaf: decides what may be released, finds the place, and makes room where it is needed.
    fn arrive(&mut self, mut path: Path<'t>, exact: bool) -> Result<Path<'t>, Stop> {
        let leaf = path.leaf().node();
        let free = leaf.leaf_free_space();
        let first = leaf.first_key();
        let becomes_first = first.is_none_or(|first| self.key < first);
        let has_room = free >= self.intent.most_bytes();
        let stays_below = has_room && !self.intent.may_reach_up() && !becomes_first;
        let early = stays_below && self.tree.shared.policy.early_release;
        if early {
            self.tree.shared.counters.early_releases.add(u64::from(path.holds_parent()));
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
            Intent::Delete { last } => self.reach_of_delete(&path, last),
            Intent::SetKey => (path.slot() == 0).then(|| path.trace.level_for_first_key()),
            Intent::Merge => self.reach_of_merge(&path),
            Intent::Insert { .. }
            | Intent::Put { .. }
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

    /// The level up to which removing the items up to `last` changes blocks.
    fn reach_of_delete(&self, path: &Path<'t>, last: Key) -> Option<u8> {
        let leaf = path.leaf().node();
        let (start, end) = (path.slot(), end_slot(leaf, last));
        if start >= end || path.trace.root_level() == 0 {
            None
        } else if end - start == leaf.nritems() {
            Some(path.trace.level_for_removal(least_pointers(self.tree.shared.nodesize())))
        } else {
            (start == 0).then(|| path.trace.level_for_first_key())
        }
    }

    fn reach_of_merge(&self, path: &Path<'t>) -> Option<u8> {
        let is_small = is_small_leaf(path.leaf().node());
        (is_small && path.trace.root_level() > 0)
            .then(|| path.trace.level_for_removal(least_pointers(self.tree.shared.nodesize())))
    }
}

impl LiveTree {
    /// Lets the pointer of step `at` lead to `new`, which takes the place of a block with equal keys.
    pub(super) fn replace_child(&self, path: &mut Path<'_>, at: usize, new: &Block) {
        let (logical, generation) = (new.logical(), new.generation());
        let slot = path.steps[at].slot;
        match &mut path.steps[at].held {
            Held::RootWrite(root) => {
                let root_now = **root;
                self.set_root(root, TreeRoot { logical, generation, ..root_now });
            }
            Held::Write(parent) => {
                NodeMut::new(parent.bytes_mut()).set_block(slot, logical, generation);
            }
            _ => unreachable!("only write-locked blocks are changed"),
        }
    }

    /// The child at `slot` of step `at`, a node, write-locked, if it is there, may be changed in place
    /// and is free: what is done with it is never needed, only good.
    pub(super) fn try_own_child<'t>(
        &'t self,
        path: &Path<'t>,
        at: usize,
        slot: usize,
    ) -> Option<WriteGuard<'t, Block>> {
        let parent = path.node(at);
        if slot >= parent.nritems() {
            return None;
        }
        match self.shared.in_memory(&Expected::child(self.id(), parent, slot))? {
            InMemory::Live(live) if self.is_own(live.generation) => live
                .try_write(self.id(), parent.key(slot), &self.shared.counters.locks)
                .filter(|guard| self.may_change(guard)),
            _ => None,
        }
    }
}

/// The slot of `key`, which is greater than the leaf's first, or where it would be inserted.
fn search_behind_first(leaf: Node<'_>, key: Key) -> Result<usize, usize> {
    let items = &leaf.items()[1..];
    let found = items.binary_search_by(|item| item.key.get().cmp(&key));
    found.map(|slot| slot + 1).map_err(|slot| slot + 1)
}

/// The first slot of a leaf whose key is greater than `last`.
pub(super) fn end_slot(leaf: Node<'_>, last: Key) -> usize {
    leaf.items().partition_point(|item| item.key.get() <= last)
}

impl Intent {
    /// Bytes that the leaf may have to take in, whatever is there.
    fn most_bytes(self) -> usize {
        match self {
            Self::Insert { bytes } | Self::Grow { bytes } => bytes,
            Self::Put { len } => weight(len),
            // An item's length is known only once it is found.
            Self::Duplicate => usize::MAX,
            _ => 0,
        }
    }

    /// Bytes that the leaf has to take in, given what is there; `None` if the change cannot be made.
    fn bytes_at(self, path: &Path<'_>) -> Option<usize> {
        let old_len = path.found.then(|| path.leaf().node().item_data(path.slot()).len());
        match (self, old_len) {
            (Self::Insert { bytes }, None) | (Self::Grow { bytes }, Some(_)) => Some(bytes),
            (Self::Put { len }, None) => Some(weight(len)),
            (Self::Put { len }, Some(old_len)) => Some(len.saturating_sub(old_len)),
            (Self::Duplicate, Some(len)) => Some(weight(len)),
            _ => None,
        }
    }

    /// Whether more than room and the first key decide what the change does above the leaf.
    fn may_reach_up(self) -> bool {
        matches!(self, Self::Delete { .. } | Self::SetKey | Self::Merge)
    }
}
