//! Two trees compared in lockstep: shared blocks are skipped without being read.
//!
//! # Invariants
//! - Both sides are at the first key that was not compared yet, at any level: the key of a pointer
//!   is that of the first item below it.
//! - Blocks of the same address and generation are the same block, and so is all below.

use std::cmp::Ordering;

use larder_btree::{Block, Tree};
use larder_filesystem::Error;
use larder_format::{Key, Logical};

use super::ahead::Ahead;

/// How much of each tree is read ahead.
const AHEAD_BYTES: usize = 512 << 10;

/// Calls `visit` with the key of every item that differs between both trees, and its data in `old`
/// and `new`, in order of keys.
pub(super) fn compare(
    old: &Tree,
    new: &Tree,
    ahead: &Ahead,
    mut visit: impl FnMut(Key, Option<&[u8]>, Option<&[u8]>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (old_root, new_root) = (old.root(), new.root());
    if (old_root.logical, old_root.generation) == (new_root.logical, new_root.generation) {
        return Ok(());
    }
    let (mut old, mut new) = (Side::new(old)?, Side::new(new)?);
    loop {
        let order = match (old.key(), new.key()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.cmp(&new),
        };
        match order {
            Ordering::Less => match old.item() {
                Some((key, data)) => {
                    visit(key, Some(data), None)?;
                    old.step();
                }
                None => old.descend()?,
            },
            Ordering::Greater => match new.item() {
                Some((key, data)) => {
                    visit(key, None, Some(data))?;
                    new.step();
                }
                None => new.descend()?,
            },
            Ordering::Equal if old.is_at_same_block(&new) => {
                old.step();
                new.step();
            }
            Ordering::Equal => match (old.item(), new.item()) {
                (Some((key, before)), Some((_, now))) => {
                    if before != now {
                        visit(key, Some(before), Some(now))?;
                    }
                    old.step();
                    new.step();
                }
                _ => match old.level().cmp(&new.level()) {
                    Ordering::Less => new.descend()?,
                    Ordering::Greater => old.descend()?,
                    Ordering::Equal => {
                        old.read_ahead(&new, ahead);
                        new.read_ahead(&old, ahead);
                        old.descend()?;
                        new.descend()?;
                    }
                },
            },
        }
    }
}

/// A position in one of the trees: a pointer or an item.
struct Side {
    tree: Tree,
    /// The path from the root; empty after the last item.
    path: Vec<Step>,
}

struct Step {
    block: Block,
    slot: usize,
    /// The first key after the block.
    upper: Option<Key>,
    /// Slots below this one were read ahead, if needed.
    asked: usize,
    /// The slot at which to read ahead further.
    ask_at: usize,
}

impl Step {
    fn new(block: Block, upper: Option<Key>) -> Self {
        Self { block, slot: 0, upper, asked: 0, ask_at: 0 }
    }
}

impl Side {
    fn new(tree: &Tree) -> Result<Self, Error> {
        let root = Step::new(tree.root_block()?, None);
        let mut side = Self { tree: tree.clone(), path: vec![root] };
        side.leave_finished();
        Ok(side)
    }

    fn key(&self) -> Option<Key> {
        self.path.last().map(|step| step.block.node().key(step.slot))
    }

    /// The level of the current block.
    fn level(&self) -> u8 {
        self.path.last().map_or(0, |step| step.block.level())
    }

    /// The current item; `None` at a pointer.
    fn item(&self) -> Option<(Key, &[u8])> {
        let step = self.path.last()?;
        let node = step.block.node();
        node.is_leaf().then(|| (node.key(step.slot), node.item_data(step.slot)))
    }

    /// Whether both are at pointers to the same block.
    fn is_at_same_block(&self, other: &Self) -> bool {
        let pointer = |side: &Self| {
            let step = side.path.last().filter(|step| step.block.level() > 0)?;
            let pointer = &step.block.node().key_pointers()[step.slot];
            Some((pointer.blockptr(), pointer.generation.get(), step.block.level()))
        };
        pointer(self).is_some() && pointer(self) == pointer(other)
    }

    /// From a pointer to the first pointer or item of its block.
    fn descend(&mut self) -> Result<(), Error> {
        let Some(step) = self.path.last() else { return Ok(()) };
        let child = self.tree.child(&step.block, step.slot, step.upper)?.block;
        let node = step.block.node();
        let next = step.slot + 1;
        let upper = if next < node.nritems() { Some(node.key(next)) } else { step.upper };
        self.path.push(Step::new(child, upper));
        Ok(())
    }

    /// Reads ahead the next siblings of the block that is about to be read, except those that the
    /// current node of the `other` side has too.
    fn read_ahead(&mut self, other: &Self, ahead: &Ahead) {
        let (Some(step), Some(theirs)) = (self.path.last_mut(), other.path.last()) else { return };
        if step.slot < step.ask_at {
            return;
        }
        let (node, cache) = (step.block.node(), self.tree.cache());
        let (most, mut slots) = (AHEAD_BYTES / cache.nodesize(), Vec::new());
        let mut slot = step.asked.max(step.slot + 1);
        step.ask_at = usize::MAX;
        while slot < node.nritems() && slots.len() < most {
            let key = node.key(slot);
            // Nothing is known after the keys of that node.
            if theirs.block.node().last_key().is_none_or(|last| last < key) {
                step.ask_at = slot;
                break;
            }
            let pointer = node.key_pointers()[slot].blockptr();
            if pointer_at(&theirs.block, key) != Some(pointer) {
                cache.store().readahead(pointer, cache.nodesize() as u64);
                slots.push(slot);
                if slots.len() == most / 2 {
                    step.ask_at = slot;
                }
            }
            slot += 1;
        }
        ahead.children(&self.tree, &step.block, slots);
        step.asked = slot;
    }

    /// To the next pointer or item that is not below this one.
    fn step(&mut self) {
        if let Some(step) = self.path.last_mut() {
            step.slot += 1;
        }
        self.leave_finished();
    }

    /// Leaves blocks at their ends.
    fn leave_finished(&mut self) {
        while let Some(step) = self.path.last()
            && step.slot >= step.block.node().nritems()
        {
            self.path.pop();
            if let Some(above) = self.path.last_mut() {
                above.slot += 1;
            }
        }
    }
}

/// The address in a node's pointer with this key.
fn pointer_at(block: &Block, key: Key) -> Option<Logical> {
    let slot = block.node().search(key).ok()?;
    Some(block.node().key_pointers()[slot].blockptr())
}
