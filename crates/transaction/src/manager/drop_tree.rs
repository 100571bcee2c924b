//! Deleting a tree: its references are dropped from the root down, in steps that can be
//! interrupted.
//!
//! # Invariants
//! - The tree's blocks are never changed, only dropped. The root item has the progress
//!   (`drop_progress`, `drop_level`): everything before that key is dropped already.
//! - A block that other trees have too loses one reference, and its children are not visited. If
//!   this tree made it, references below it first become references by address, since the tree's id
//!   will mean nothing.
//! - A block goes after everything that it refers to.

use std::sync::Arc;

use larder_btree::{Block, Expected, LiveTree};
use larder_format::item::{EXTENT_FLAG_FULL_BACKREF, RootItem};
use larder_format::objectid::{ROOT_TREE, TREE_RELOC};
use larder_format::{ItemType, Key};

use super::{Handle, TransactionManager};
use crate::error::{Error, Result};
use crate::extent::{References, Referrer};
use crate::refs::ExtentRef;
use crate::space::Priority;

/// Items to reserve for: the root item, and the part of bookkeeping that cannot be delayed.
const ITEMS_PER_STEP: u64 = 2;

/// A block on the way from the root, to which only this tree refers.
struct Step {
    block: Block,
    /// The origin of the reference to the block.
    referrer: Referrer,
    /// Whether the references to the block's children are by its address.
    is_full: bool,
    /// The next child to drop.
    slot: usize,
}

/// A walk over a tree that is being deleted.
struct Walk<'m> {
    manager: &'m TransactionManager,
    tree: Arc<LiveTree>,
    /// The transaction that made the tree, if it is a snapshot: all blocks of up to that
    /// transaction, except the root, belong to other trees.
    born: u64,
    path: Vec<Step>,
    /// Blocks that may still be visited, and data whose references may still be dropped, in this
    /// step. The last leaf may exceed it.
    budget: u64,
}

impl TransactionManager {
    /// Drops about `references` references of a tree that is being deleted: no thread uses it, nothing
    /// leads to it, and the reference count in its root item is 0. Returns whether all of it is
    /// gone; then its root item is gone too.
    pub fn drop_tree(&self, id: u64, references: u64) -> Result<bool> {
        let tree = self.trees.open(id)?;
        let (Some(tree), Some((key, item))) = (tree, self.trees.root_item(id)) else {
            let key = Key::new(id, ItemType::ROOT_ITEM, 0);
            return Err(Error::MissingItem { tree: ROOT_TREE, key });
        };
        if item.refs.get() != 0 {
            return Err(Error::item(
                ROOT_TREE,
                key,
                larder_format::FormatError::invalid("RootItem", "the tree is in use"),
            ));
        }
        let priority = Priority::Cleaning;
        let budget = self.space().references_at_once(ITEMS_PER_STEP, references, priority);
        let handle = self.start_referring(ITEMS_PER_STEP, budget, priority)?;
        let mut walk = Walk { manager: self, tree, born: key.offset, path: Vec::new(), budget };
        let is_done =
            walk.run(&handle, key, &item).inspect_err(|error| self.abort(error.clone()))?;
        handle.end()?;
        Ok(is_done)
    }
}

impl Walk<'_> {
    fn run(&mut self, handle: &Handle<'_>, key: Key, item: &RootItem) -> Result<bool> {
        let budget = self.budget;
        self.enter_root(item)?;
        // Each step comes further than the last one.
        self.budget = budget;
        while let Some(step) = self.path.last_mut() {
            if self.budget == 0 && step.block.level() > 0 && step.slot < step.block.node().nritems()
            {
                self.note_progress(handle);
                return Ok(false);
            }
            let slot = step.slot;
            step.slot += 1;
            if step.block.level() > 0 && slot < step.block.node().nritems() {
                self.give_up_child(slot)?;
            } else {
                let step = self.path.pop().expect("it was just there");
                self.give_up_block(&step)?;
            }
        }
        self.manager.trees.remove(self.tree.id(), key)?;
        Ok(true)
    }

    /// Visits the root, and the path at which the last step stopped.
    fn enter_root(&mut self, item: &RootItem) -> Result<()> {
        let root = self.tree.look(&self.tree.root().into())?;
        let referrer = match self.tree.id() {
            TREE_RELOC => Referrer::Block { parent: root.logical().0 },
            id => Referrer::Tree { root: id },
        };
        self.enter(root, referrer)?;
        let progress = item.drop_progress.get();
        if progress.objectid == 0 {
            return Ok(());
        }
        loop {
            let depth = self.path.len();
            let Some(step) = self.path.last_mut().filter(|step| step.block.level() > 0) else {
                break;
            };
            let slot = step.block.node().child_slot(progress);
            step.slot = slot;
            if step.block.level() <= item.drop_level {
                break;
            }
            step.slot += 1;
            self.give_up_child(slot)?;
            if self.path.len() == depth {
                // Only this tree had its path when the last step ended, and no thread adds
                // references to it.
                let logical = self.path[depth - 1].block.logical();
                return Err(Error::extent(logical, "a tree that is being deleted was shared"));
            }
        }
        Ok(())
    }

    /// Records where the next step begins.
    fn note_progress(&self, handle: &Handle<'_>) {
        let Some(step) = self.path.last() else { return };
        let (key, level) = (step.block.node().key(step.slot), step.block.level());
        let noted = handle.change_root_item(self.tree.id(), |item| {
            item.drop_progress = key.into();
            item.drop_level = level;
        });
        debug_assert!(noted.is_some(), "a tree that is walked is open");
    }

    /// The child of the last block at `slot`, and the origin of the reference to it.
    fn child(&mut self, slot: usize) -> Result<(Block, Referrer)> {
        let step = self.path.last().expect("a child has a parent");
        let expected = Expected::child(self.tree.id(), step.block.node(), slot);
        let referrer = if step.is_full {
            Referrer::Block { parent: step.block.logical().0 }
        } else {
            Referrer::Tree { root: step.block.header().owner.get() }
        };
        self.budget = self.budget.saturating_sub(1);
        Ok((self.tree.look(&expected)?, referrer))
    }

    fn give_up_child(&mut self, slot: usize) -> Result<()> {
        let (child, referrer) = self.child(slot)?;
        self.enter(child, referrer)
    }

    /// Visits a block that only this tree has, or drops the reference to one that is shared.
    fn enter(&mut self, block: Block, referrer: Referrer) -> Result<()> {
        let tree_space = &self.manager.tree_space;
        let named = tree_space.block_ref(&block);
        let head = tree_space.refs.lock_head(named.logical);
        let References { count, flags } = tree_space.references(named, &head)?;
        let is_full = flags & EXTENT_FLAG_FULL_BACKREF != 0;
        if count > 1 {
            if self.is_own(&block) && !(is_full && block.level() == 0) {
                self.refer_by_address(&block, named, is_full)?;
            }
            return tree_space.drop_block(named, referrer);
        }
        drop(head);
        self.path.push(Step { block, referrer, is_full, slot: 0 });
        Ok(())
    }

    /// Whether this tree made a block.
    fn is_own(&self, block: &Block) -> bool {
        block.header().owner.get() == self.tree.id() && block.generation() > self.born
    }

    /// Turns all references of a shared block of this tree, and of the blocks below it that this
    /// tree made, into references by address. The block's ref head is locked.
    fn refer_by_address(&mut self, block: &Block, named: ExtentRef, is_full: bool) -> Result<()> {
        let tree_space = &self.manager.tree_space;
        if !is_full {
            tree_space.change_children(block, true, 1)?;
            tree_space.change_children(block, false, -1)?;
            tree_space.refs.set_full_backref(named);
        }
        if block.level() == 0 {
            return Ok(());
        }
        for slot in 0..block.node().nritems() {
            let expected = Expected::child(self.tree.id(), block.node(), slot);
            if expected.generation <= self.born {
                continue;
            }
            let child = self.tree.look(&expected)?;
            if !self.is_own(&child) {
                continue;
            }
            let named = self.manager.tree_space.block_ref(&child);
            let head = self.manager.tree_space.refs.lock_head(named.logical);
            let references = self.manager.tree_space.references(named, &head)?;
            let is_full = references.flags & EXTENT_FLAG_FULL_BACKREF != 0;
            if !(is_full && child.level() == 0) {
                self.refer_by_address(&child, named, is_full)?;
            }
        }
        Ok(())
    }

    /// Drops a block whose children are dropped, or a leaf with the data of its files.
    fn give_up_block(&mut self, step: &Step) -> Result<()> {
        let tree_space = &self.manager.tree_space;
        if step.block.level() == 0 {
            let dropped = tree_space.change_children(&step.block, step.is_full, -1)?;
            self.budget = self.budget.saturating_sub(dropped);
        }
        tree_space.drop_block(tree_space.block_ref(&step.block), step.referrer)
    }
}
