//! The trees that say what all others use: extents, free space, block groups, chunks, devices.
//!
//! Changing them allocates and frees blocks of their own, which changes them again. That comes to
//! rest, since a block is copied once in a transaction.
//!
//! # Invariants
//! - One thread at a time edits these trees: it holds `bookkeeping`.
//! - A group has its items before any extent in it has one.

use std::sync::atomic::Ordering::Relaxed;

use larder_format::Logical;
use larder_format::item::BlockGroupItem;
use larder_format::objectid::FIRST_CHUNK_TREE;
use zerocopy::IntoBytes;

use super::TransactionManager;
use super::load::{block_group_key, free_space_of};
use crate::chunk::{ChunkTrees, insert_chunk, remove_chunk};
use crate::error::{Error, Result};
use crate::extent::ExtentChange;
use crate::items::Items;
use crate::refs::{ExtentKind, Head};
use crate::space::Group;
use crate::tree_items::TreeItems;

/// Extents whose references are run together: as many as a leaf of the extent tree has, more or less.
pub(super) const BATCH: usize = 256;

impl TransactionManager {
    /// Runs the delayed references of up to `limit` extents, and returns of how many it did. The
    /// caller is inside the door or has closed it.
    pub(super) fn run_some_references(&self, limit: usize) -> Result<usize> {
        let _running = self.bookkeeping.lock();
        let batch = self.accounting.refs.take(limit);
        // The groups of all extents in the batch have been made by now.
        self.write_created_groups()?;
        let mut extents = TreeItems::new(self.trees.extent.clone());
        let items = self.accounting.extent_items(self.generation());
        let changes = items.run(&mut extents, batch.heads())?;
        for ((logical, head), change) in batch.heads().iter().zip(changes) {
            self.follow(*logical, head, change)?;
        }
        Ok(batch.heads().len())
    }

    /// Does what a change in the extent tree calls for elsewhere.
    fn follow(&self, logical: Logical, head: &Head, change: ExtentChange) -> Result<()> {
        let range = logical.0..logical.0 + head.len_bytes;
        let space = &self.accounting.space;
        match change {
            ExtentChange::Inserted => {
                self.with_free_space(logical, |space, tree| space.take(tree, &range))?;
                space.inserted(&range)
            }
            ExtentChange::Removed => {
                self.forget_checksums(logical, head)?;
                self.with_free_space(logical, |space, tree| space.give(tree, &range))?;
                space.removed(&range)
            }
            ExtentChange::Kept if head.is_new => {
                self.forget_checksums(logical, head)?;
                space.abandoned(&range)
            }
            ExtentChange::Kept => Ok(()),
        }
    }

    fn forget_checksums(&self, logical: Logical, head: &Head) -> Result<()> {
        if head.kind != ExtentKind::Data {
            return Ok(());
        }
        let _changing = self.checksums.lock();
        let mut tree = TreeItems::new(self.trees.csum.clone());
        self.checksum_items().remove(&mut tree, logical, head.len_bytes)
    }

    /// Edits the free space tree, where there is one, about the group that holds `logical`.
    fn with_free_space(
        &self,
        logical: Logical,
        edit: impl FnOnce(&crate::free_space_tree::GroupFreeSpace, &mut dyn Items) -> Result<()>,
    ) -> Result<()> {
        let Some(tree) = &self.trees.free_space else { return Ok(()) };
        let group = self.accounting.space.group_at(logical);
        let group = group.ok_or_else(|| Error::extent(logical, "it lies in no block group"))?;
        let space = free_space_of(group.chunk(), self.volume.sectorsize());
        edit(&space, &mut TreeItems::new(tree.clone()))
    }

    /// Enters groups that were made in memory.
    fn write_created_groups(&self) -> Result<()> {
        while let Some(group) = self.accounting.space.next_created() {
            let chunk = group.chunk();
            self.with_chunk_trees(|trees, devices| insert_chunk(trees, devices, chunk))?;
            let mut tree = TreeItems::new(self.trees.block_group.clone());
            tree.insert(block_group_key(chunk), block_group_item(&group).as_bytes())?;
            self.with_free_space(group.start(), |space, tree| space.create(tree))?;
        }
        Ok(())
    }

    /// Brings the items of groups up to date. Returns whether there were any.
    pub(super) fn write_groups(&self) -> Result<bool> {
        let _running = self.bookkeeping.lock();
        let space = &self.accounting.space;
        let dirty = loop {
            self.write_created_groups()?;
            // A group may have been made meanwhile.
            if let Some(dirty) = space.take_dirty() {
                break dirty;
            }
        };
        let mut tree = TreeItems::new(self.trees.block_group.clone());
        for start in &dirty {
            let Some(group) = space.group_at(Logical(*start)) else { continue };
            tree.replace(block_group_key(group.chunk()), block_group_item(&group).as_bytes())?;
        }
        Ok(!dirty.is_empty())
    }

    /// Removes block groups that are empty. Without a free space tree they stay: older caches of
    /// free space would have to go with them.
    pub(super) fn remove_empty_groups(&self) -> Result<()> {
        if self.trees.free_space.is_none() {
            return Ok(());
        }
        let _running = self.bookkeeping.lock();
        let space = &self.accounting.space;
        for group in space.close_empty_groups() {
            let chunk = group.chunk();
            let mut tree = TreeItems::new(self.trees.block_group.clone());
            tree.remove(block_group_key(chunk))?;
            self.with_free_space(group.start(), |space, tree| space.delete(tree))?;
            space.retire(chunk);
            self.with_chunk_trees(|trees, devices| remove_chunk(trees, devices, chunk))?;
            space.remove(&group);
        }
        Ok(())
    }

    /// Commits if that removes block groups which the last commit has left empty.
    pub(super) fn commit_empty_groups(&self) -> Result<()> {
        if self.trees.free_space.is_some() && self.accounting.space.has_empty_groups() {
            self.accounting.is_changed.store(true, Relaxed);
            self.commit()?;
        }
        Ok(())
    }

    fn with_chunk_trees(
        &self,
        edit: impl FnOnce(&mut ChunkTrees<'_>, &crate::chunk::Devices) -> Result<()>,
    ) -> Result<()> {
        let mut chunk_tree = TreeItems::new(self.chunk_tree.clone());
        let mut dev_tree = TreeItems::new(self.trees.dev.clone());
        // A copy: editing the trees may allocate a chunk, which takes space on devices.
        let devices = self.accounting.space.with_devices(Clone::clone);
        let mut trees = ChunkTrees {
            chunk_tree: &mut chunk_tree,
            dev_tree: &mut dev_tree,
            chunk_tree_uuid: self.chunk_tree_uuid,
            sectorsize: self.volume.sectorsize(),
        };
        edit(&mut trees, &devices)
    }
}

fn block_group_item(group: &Group) -> BlockGroupItem {
    BlockGroupItem {
        used: group.used().into(),
        chunk_objectid: FIRST_CHUNK_TREE.into(),
        flags: group.flags().bits().into(),
    }
}
