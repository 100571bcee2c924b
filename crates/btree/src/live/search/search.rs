//! The way down to a leaf.
//!
//! A descent locks each block before it releases the one above (coupling). It takes read locks at
//! first, and write locks below the level `write_below`. That level starts low. Where the descent
//! finds that a block above must change too (a copy, a split, a removal), it releases everything
//! and begins again with write locks from exactly that block down. Each new beginning locks more,
//! so there are few.
//!
//! A thread holds no lock while it reads a block: the descent releases everything, reads, and
//! begins again. Two commits can pass meanwhile, and then the address may hold another block. So a
//! failed read is an error only if the next descent wants the same block again.

use larder_format::Key;

use super::arrival::Arrival;
use super::shortcut::by_finger;
use super::stop::{MissingBlock, Stop};
use super::target::{Intent, Target};
use crate::block::Block;
use crate::error::TreeError;
use crate::expected::Expected;
use crate::live::bytes::node::has_room;
use crate::live::error::ChangeError;
use crate::live::path::path::{Held, Path};
use crate::live::state::finger::Finger;
use crate::live::state::forest::InMemory;
use crate::live::state::tree::{ROOT_POINTER_LEVEL, TreeState};
use crate::live::structure::split::split_node;
use crate::readahead::LiveWindow;

/// A search for a key in a tree.
pub(crate) struct Search<'t> {
    tree: &'t TreeState,
    target: Target<'t>,
    /// The descent write-locks levels below this one.
    write_below: u8,
    /// Whether the descent splits full nodes on its way, because the leaf will split.
    splits_nodes: bool,
    /// Blocks that this search read, so that it cannot lose them to eviction again.
    fetched: Vec<Block>,
    /// The block that the last read failed for, and why.
    failed: Option<(Expected, TreeError)>,
    /// Reads siblings ahead.
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
    pub(crate) fn new(tree: &'t TreeState, key: Key, intent: Intent<'t>) -> Self {
        let first = tree.forest.policy.first_write_level();
        let write_below = match intent {
            Intent::Read => 0,
            Intent::Insert { .. } | Intent::Put { .. } | Intent::Replace { .. } => 1 + first,
            _ => 1,
        };
        Self {
            tree,
            target: Target { key, intent },
            write_below,
            splits_nodes: false,
            fetched: Vec::new(),
            failed: None,
            window: None,
            finger: None,
        }
    }

    /// A search that reads, and reads ahead.
    pub(crate) fn reading(tree: &'t TreeState, key: Key, window: &'t mut LiveWindow) -> Self {
        Self { window: Some(window), ..Self::new(tree, key, Intent::Read) }
    }

    /// As [`run`](Self::run), for searches that only read.
    pub(crate) fn run_read(self) -> Result<Path<'t>, TreeError> {
        debug_assert_eq!(self.target.intent, Intent::Read);
        self.run().map_err(|error| match error {
            ChangeError::Tree(error) => error,
            error => unreachable!("reading changes nothing: {error}"),
        })
    }

    /// Runs until it holds the leaf as the intent wants it.
    pub(crate) fn run(mut self) -> Result<Path<'t>, ChangeError> {
        let counters = &self.tree.forest.counters;
        if self.uses_fingers()
            && let Some(path) = by_finger(self.tree, &self.target)
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
                Err(Stop::RestartToSplit { level }) => {
                    counters.restarts.add(1);
                    self.splits_nodes = true;
                    self.write_below = self.write_below.max(level + 1);
                }
                Err(Stop::Read(missing)) => {
                    counters.read_restarts.add(1);
                    self.fetch(&missing)?;
                }
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
    }

    /// A cursor searches another leaf each time, so that fingers gain it nothing.
    fn uses_fingers(&self) -> bool {
        self.tree.forest.policy.uses_fingers() && self.window.is_none()
    }

    /// Reads a block, with no lock held. A failure is an error when a descent wants the block
    /// again.
    fn fetch(&mut self, missing: &MissingBlock) -> Result<(), TreeError> {
        if let Some((_, error)) = self.failed.take_if(|(failed, _)| *failed == missing.expected) {
            return Err(error);
        }
        let cache = &self.tree.forest.cache;
        if let (Some(window), Some((parent, slot))) = (&mut self.window, &missing.parent) {
            window.before_read(cache, parent, *slot);
        }
        match cache.read(&missing.expected) {
            Ok(read) => self.fetched.push(read.block),
            Err(error) => self.failed = Some((missing.expected, error.with_upper(missing.upper))),
        }
        Ok(())
    }

    fn descend(&mut self) -> Result<Path<'t>, Stop> {
        let (root, expected) = self.hold_root();
        let mut path = Path::new(self.tree, root);
        let mut child = self.find(expected, None, None)?;
        // Whether the descent met the key above: then it is the first of every block from there
        // down.
        let mut exact = false;
        loop {
            let held = self.hold(&mut path, child)?;
            path.push(held);
            let at = path.bottom();
            let node = path.node(at);
            if node.is_leaf() {
                let arrival = Arrival { target: &self.target, may_split: self.splits_nodes };
                return arrival.finish(path, exact);
            }
            let found = if exact { Ok(0) } else { node.search(self.target.key) };
            exact = found.is_ok();
            let slot = found.unwrap_or_else(|slot| slot.saturating_sub(1));
            path.choose_child(slot);
            if self.splits_nodes {
                make_room_for_pointers(&mut path)?;
            }
            let at = path.bottom();
            let (parent, slot) = (path.block(at), path.steps[at].slot);
            let upper = parent.child_upper(slot, path.upper);
            let expected = Expected::child(self.tree.id, parent.node(), slot);
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
        let Some(block) = self.tree.forest.in_memory(&expected).or_else(fetched) else {
            let parent = parent.map(|(block, slot)| (block.clone(), slot));
            return Err(Stop::Read(MissingBlock { expected, upper, parent }));
        };
        if let InMemory::Clean(block) = &block {
            expected.check_upper(block, upper)?;
        }
        Ok(Child { block, expected })
    }

    /// Locks a child of the path's last step as its level asks for, and copies it if it must.
    fn hold(&mut self, path: &mut Path<'t>, child: Child) -> Result<Held<'t>, Stop> {
        let tree = self.tree;
        let key = child.expected.first_key.unwrap_or(Key::MIN);
        if child.expected.level >= self.write_below {
            return Ok(match child.block {
                InMemory::Clean(block) => Held::Clean(block),
                InMemory::Live(live) => {
                    let guard = tree.read_block(&live, key);
                    if let Some(version) = live.version()
                        && self.uses_fingers()
                        && tree.may_change(&guard)
                    {
                        self.finger = Some(Finger::new(&guard, path.upper, version.clone()));
                    }
                    Held::Read(guard)
                }
            });
        }
        let old = match child.block {
            InMemory::Live(live) if tree.is_own(live.generation) => {
                let guard = tree.write_block(&live, key);
                if tree.may_change(&guard) {
                    return Ok(Held::Write(guard));
                }
                guard.clone()
            }
            InMemory::Live(live) => tree.read_block(&live, key).clone(),
            InMemory::Clean(block) => block,
        };
        let bottom = path.bottom();
        if !path.steps[bottom].held.is_write() {
            return Err(Stop::Restart { level: path.trace.level_for_copy() });
        }
        let new = tree.copy(old)?;
        path.replace_child(bottom, &new);
        Ok(Held::Write(new))
    }
}

/// Makes room for two more pointers in the path's last step, a node, if it is write-locked.
fn make_room_for_pointers(path: &mut Path<'_>) -> Result<(), Stop> {
    let at = path.bottom();
    if !path.steps[at].held.is_write() || has_room(path.node(at), 2) {
        return Ok(());
    }
    if at == 0 {
        return Err(Stop::Restart { level: path.trace.level_for_split() });
    }
    split_node(path)?;
    Ok(())
}
