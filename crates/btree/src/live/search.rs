//! Finding the leaf for a change, with as few locks as the change needs.
//!
//! A descent locks each block before it releases the one above (coupling). Down to
//! `write_below` it takes write locks, above it read locks. It starts low; where it finds that a
//! block above must change too (a copy, a split, a removal), it lets go of everything and begins
//! again with write locks from exactly that block down. Each new beginning locks more, so there are
//! few.
//!
//! No lock is held while a block is read: the descent lets go, reads, and begins again. Commits can pass
//! meanwhile, and once two have, the address may hold another block: what fails is an error only if the next
//! descent wants it again.

use larder_format::Key;

use super::error::ChangeError;
use super::finger::Finger;
use super::forest::InMemory;
use super::intent::Intent;
use super::node::NodeMut;
use super::path::{Held, Path, ROOT_POINTER_LEVEL};
use super::tree::LiveTree;
use crate::block::Block;
use crate::error::TreeError;
use crate::expected::Expected;
use crate::lock::WriteGuard;
use crate::readahead::LiveWindow;
use crate::root::TreeRoot;

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

/// A search for `key` in a tree.
pub(super) struct Search<'t> {
    pub(super) tree: &'t LiveTree,
    pub(super) key: Key,
    pub(super) intent: Intent,
    /// For [`Intent::DeleteRun`]: ascending keys, of which the first is the one searched for.
    pub(super) keys: &'t [Key],
    /// Levels below this one are write-locked.
    write_below: u8,
    /// Whether full nodes on the way are split, because the leaf will be.
    pub(super) split: bool,
    /// Blocks that were read for this search, so that it cannot lose them to eviction again.
    fetched: Vec<Block>,
    /// The block that could not be read last, and why.
    failed: Option<(Expected, TreeError)>,
    /// What reads siblings ahead.
    window: Option<&'t mut LiveWindow>,
    /// The node above the leaf, to remember.
    finger: Option<Finger>,
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
            Intent::Insert { .. } | Intent::Put { .. } | Intent::Replace { .. } => 1 + first,
            _ => 1,
        };
        Self {
            tree,
            key,
            intent,
            keys: &[],
            write_below,
            split: false,
            fetched: Vec::new(),
            failed: None,
            window: None,
            finger: None,
        }
    }

    /// A search that reads, and reads ahead.
    pub(super) fn reading(tree: &'t LiveTree, key: Key, window: &'t mut LiveWindow) -> Self {
        Self { window: Some(window), ..Self::new(tree, key, Intent::Read) }
    }

    /// A search for the first of `keys`, to remove it and those that follow it in its leaf.
    pub(super) fn deleting(tree: &'t LiveTree, keys: &'t [Key]) -> Self {
        Self { keys, ..Self::new(tree, keys[0], Intent::DeleteRun) }
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
        if self.uses_fingers()
            && let Some(path) = self.by_finger()
        {
            return Ok(path);
        }
        loop {
            match self.descend() {
                Ok(path) => {
                    if let Some(finger) = self.finger.take() {
                        self.tree.fingers.keep(finger);
                    }
                    return Ok(path);
                }
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

    /// Cursors look for the next leaf each time, and have nothing to gain.
    fn uses_fingers(&self) -> bool {
        self.tree.shared.policy.fingers && self.window.is_none()
    }

    /// Reads a block, with no lock held. One that cannot be read is an error when it is wanted again.
    fn fetch(&mut self, wanted: &Wanted) -> Result<(), TreeError> {
        if let Some((_, error)) = self.failed.take_if(|(failed, _)| *failed == wanted.expected) {
            return Err(error);
        }
        let cache = &self.tree.shared.cache;
        if let (Some(window), Some((parent, slot))) = (&mut self.window, &wanted.parent) {
            window.before_read(cache, parent, *slot);
        }
        match cache.read(&wanted.expected) {
            Ok(read) => self.fetched.push(read.block),
            Err(error) => self.failed = Some((wanted.expected, error.with_upper(wanted.upper))),
        }
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
            let found = if exact { Ok(0) } else { node.search(self.key) };
            exact = found.is_ok();
            let slot = found.unwrap_or_else(|slot| slot.saturating_sub(1));
            path.note(slot, |block| self.tree.may_change(block));
            if self.split {
                self.make_room_for_pointers(&mut path)?;
            }
            let at = path.bottom();
            let (parent, slot) = (path.block(at), path.steps[at].slot);
            let upper = parent.child_upper(slot, path.upper);
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
        let fetched = || self.fetched.iter().find(is_it).cloned().map(InMemory::Clean);
        let Some(block) = self.tree.shared.in_memory(&expected).or_else(fetched) else {
            let parent = parent.map(|(block, slot)| (block.clone(), slot));
            return Err(Stop::Read(Wanted { expected, upper, parent }));
        };
        if let InMemory::Clean(block) = &block {
            expected.check_upper(block, upper)?;
        }
        Ok(Child { block, expected })
    }

    /// Locks a child of the path's last step as its level asks for, copying it before it may change.
    fn hold(&mut self, path: &mut Path<'t>, child: Child) -> Result<Held<'t>, Stop> {
        let (tree, counters) = (self.tree.id(), &self.tree.shared.locks);
        let key = child.expected.first_key.unwrap_or(Key::MIN);
        if child.expected.level >= self.write_below {
            return Ok(match child.block {
                InMemory::Clean(block) => Held::Clean(block),
                InMemory::Live(live) => {
                    let guard = live.read(tree, key, counters);
                    if let Some(version) = live.version()
                        && self.uses_fingers()
                        && self.tree.may_change(&guard)
                    {
                        self.finger = Some(Finger::new(guard.clone(), path.upper, version.clone()));
                    }
                    Held::Read(guard)
                }
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
        let new = self.tree.copy(old)?;
        self.tree.replace_child(path, bottom, &new);
        Ok(Held::Write(new))
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
                .try_write(self.id(), parent.key(slot), &self.shared.locks)
                .filter(|guard| self.may_change(guard)),
            _ => None,
        }
    }
}
