//! The trees that account for all others: extents, free space, block groups, chunks, devices,
//! checksums.
//!
//! A change of these trees allocates and frees blocks of their own, which changes them again. That
//! ends, since a block is copied once in a transaction.
//!
//! # Invariants
//! - One thread at a time edits the extent, free space, block group, chunk and device trees, and
//!   one thread at a time the checksum tree.
//! - A block group has its items before any extent in it has one.

use std::ops::Range;
use std::sync::Arc;

use larder_format::item::BlockGroupItem;
use larder_format::objectid::FIRST_CHUNK_TREE;
use larder_format::{Logical, Profile};
use larder_locks::RankedMutex;
use larder_locks::rank::{BOOKKEEPING, CHECKSUMS};
use larder_volume::layout::Devices;
use larder_volume::{Chunk, ChunkStripe, Volume};
use zerocopy::IntoBytes;

use super::device_stats::DeviceStats;
use super::load::{block_group_key, free_space_of};
use super::system_trees::SystemTrees;
use super::tree_space::TreeSpace;
use crate::chunk::{ChunkTrees, insert_chunk, remove_chunk, replace_chunk};
use crate::error::{Error, Result};
use crate::extent::{ChecksumItems, ExtentChange};
use crate::free_space_tree::GroupFreeSpace;
use crate::items::Items;
use crate::refs::{ExtentKind, Head};
use crate::space::{Group, SpaceKind};
use crate::tree_items::TreeItems;

/// Delayed references of as many extents are run together: about as many as a leaf of the extent
/// tree has.
pub(super) const BATCH: usize = 256;

/// Edits the trees that account for all others.
#[derive(Debug)]
pub(super) struct Bookkeeping {
    volume: Arc<Volume>,
    trees: Arc<SystemTrees>,
    tree_space: Arc<TreeSpace>,
    pub(super) device_stats: DeviceStats,
    /// Locked by the thread that edits the extent, free space, block group, chunk and device trees.
    editing: RankedMutex<(), BOOKKEEPING>,
    /// Locked by the thread that edits the checksum tree.
    checksums: RankedMutex<(), CHECKSUMS>,
}

impl Bookkeeping {
    pub(super) fn new(
        volume: Arc<Volume>,
        trees: Arc<SystemTrees>,
        tree_space: Arc<TreeSpace>,
    ) -> Result<Self> {
        let device_stats = DeviceStats::load(volume.clone(), trees.dev.clone())?;
        let (editing, checksums) = (RankedMutex::default(), RankedMutex::default());
        Ok(Self { volume, trees, tree_space, device_stats, editing, checksums })
    }

    /// Whether a thread edits the trees now.
    pub(super) fn is_busy(&self) -> bool {
        self.editing.is_locked()
    }

    /// The rules of checksum items.
    pub(super) fn checksum_items(&self) -> ChecksumItems {
        ChecksumItems {
            nodesize: self.volume.nodesize(),
            sectorsize: self.volume.sectorsize(),
            checksum_type: self.volume.checksum_type(),
        }
    }

    /// Calls `look` while no thread edits the checksum tree.
    pub(super) fn with_still_checksums<T>(&self, look: impl FnOnce() -> T) -> T {
        let _still = self.checksums.lock();
        look()
    }

    /// Inserts the checksums of the sectors from `start` on, in place of existing ones.
    pub(super) fn insert_checksums(&self, start: Logical, sums: &[u8]) -> Result<()> {
        let _editing = self.checksums.lock();
        let mut tree = TreeItems::new(self.trees.csum.clone());
        self.checksum_items().insert(&mut tree, start, sums)
    }

    /// Runs the delayed references of up to `limit` extents in the transaction `generation`, and
    /// returns for how many.
    pub(super) fn run_references(&self, limit: usize, generation: u64) -> Result<usize> {
        let _editing = self.editing.lock();
        let batch = self.tree_space.refs.take(limit);
        // The groups of all extents in the batch exist by now.
        self.write_created_groups()?;
        let mut extents = TreeItems::new(self.trees.extent.clone());
        let items = self.tree_space.extent_items(generation);
        let changes = items.run(&mut extents, batch.heads())?;
        self.follow(&ChangedExtents { heads: batch.heads(), changes })?;
        Ok(batch.heads().len())
    }

    /// Changes checksums, free space and block groups as changes in the extent tree require. Extents
    /// that adjoin are changed together.
    fn follow(&self, extents: &ChangedExtents<'_>) -> Result<()> {
        let space = &self.tree_space.space;
        let begins_group = |at: u64| {
            let group = space.group_at(Logical(at));
            group.is_some_and(|group| group.start().0 == at)
        };
        // Space that no extent has any more may be used again at once.
        self.forget_checksums(joined(extents.without_checksums(), |_| false))?;
        for range in joined(extents.with(ExtentChange::Inserted), begins_group) {
            self.with_free_space(Logical(range.start), |space, tree| space.take(tree, &range))?;
            space.inserted(&range)?;
        }
        for range in joined(extents.with(ExtentChange::Removed), begins_group) {
            self.with_free_space(Logical(range.start), |space, tree| space.give(tree, &range))?;
            space.removed(&range)?;
        }
        extents.abandoned().try_for_each(|range| space.abandoned(&range))
    }

    fn forget_checksums(&self, ranges: Vec<Range<u64>>) -> Result<()> {
        let _editing = self.checksums.lock();
        let mut tree = TreeItems::new(self.trees.csum.clone());
        ranges.into_iter().try_for_each(|Range { start, end }| {
            self.checksum_items().remove(&mut tree, Logical(start), end - start)
        })
    }

    /// Edits the free space tree, if there is one, for the group that contains `logical`.
    fn with_free_space(
        &self,
        logical: Logical,
        edit: impl FnOnce(&GroupFreeSpace, &mut dyn Items) -> Result<()>,
    ) -> Result<()> {
        let Some(tree) = &self.trees.free_space else { return Ok(()) };
        let group = self.tree_space.space.group_at(logical);
        let group = group.ok_or_else(|| Error::extent(logical, "it lies in no block group"))?;
        let space = free_space_of(&group.chunk(), self.volume.sectorsize());
        edit(&space, &mut TreeItems::new(tree.clone()))
    }

    /// Inserts block groups that exist in memory only.
    fn write_created_groups(&self) -> Result<()> {
        while let Some(group) = self.tree_space.space.next_created() {
            let chunk = group.chunk();
            self.with_chunk_trees(|trees, devices| insert_chunk(trees, devices, &chunk))?;
            let mut tree = TreeItems::new(self.trees.block_group.clone());
            tree.insert(block_group_key(&chunk), block_group_item(&group).as_bytes())?;
            self.with_free_space(group.start(), |space, tree| space.create(tree))?;
        }
        Ok(())
    }

    /// Updates the items of block groups. Returns whether any were out of date.
    pub(super) fn write_groups(&self) -> Result<bool> {
        let _editing = self.editing.lock();
        let space = &self.tree_space.space;
        let dirty = loop {
            self.write_created_groups()?;
            // Another thread may have created a group meanwhile.
            if let Some(dirty) = space.take_dirty() {
                break dirty;
            }
        };
        let mut tree = TreeItems::new(self.trees.block_group.clone());
        for start in &dirty {
            let Some(group) = space.group_at(Logical(*start)) else { continue };
            tree.replace(block_group_key(&group.chunk()), block_group_item(&group).as_bytes())?;
        }
        Ok(!dirty.is_empty())
    }

    /// Removes empty block groups. Without a free space tree they stay, since older caches of free
    /// space would have to be removed with them.
    pub(super) fn remove_empty_groups(&self) -> Result<()> {
        if self.trees.free_space.is_none() {
            return Ok(());
        }
        let _editing = self.editing.lock();
        let space = &self.tree_space.space;
        for group in space.take_empty_groups() {
            let chunk = group.chunk();
            let mut tree = TreeItems::new(self.trees.block_group.clone());
            tree.remove(block_group_key(&chunk))?;
            self.with_free_space(group.start(), |space, tree| space.delete(tree))?;
            space.retire(&chunk);
            self.with_chunk_trees(|trees, devices| remove_chunk(trees, devices, &chunk))?;
            space.remove(&group);
        }
        Ok(())
    }

    /// Begins to move the chunk of a group, which stays until the move ends. Returns the group and the
    /// layout to which it moves; `None` if the group is gone.
    pub(super) fn begin_move(
        &self,
        start: Logical,
        profile: Profile,
        leaves: impl Fn(&ChunkStripe) -> bool,
    ) -> Result<Option<(Arc<Group>, Arc<Chunk>)>> {
        // No thread removes groups meanwhile.
        let _editing = self.editing.lock();
        self.write_created_groups()?;
        let space = &self.tree_space.space;
        let Some(group) = space.group_at(start) else { return Ok(None) };
        let to = space.begin_move(&group, profile, leaves).ok_or_else(|| {
            let kind = SpaceKind::of_types(group.flags()).expect("a chunk has a type");
            Error::NoPlace { start, kind, profile }
        })?;
        Ok(Some((group, to)))
    }

    /// Allocates nothing in the group at `start` from now on; `None` if it is gone, or not one that
    /// others may be allocated in.
    pub(super) fn begin_leaving(&self, start: Logical) -> Result<Option<Arc<Group>>> {
        // No thread removes groups meanwhile.
        let _editing = self.editing.lock();
        self.write_created_groups()?;
        let space = &self.tree_space.space;
        let group = space.group_at(start).filter(|group| group.start() == start);
        Ok(group.filter(|group| space.begin_leaving(group)))
    }

    /// Whether empty block groups can be removed.
    pub(super) fn removes_groups(&self) -> bool {
        self.trees.free_space.is_some()
    }

    /// Keeps the group at `start` from being removed, until the caller says that it does not
    /// [move](Group::set_moves). `None` if it is gone.
    pub(super) fn hold_group(&self, start: Logical) -> Result<Option<Arc<Group>>> {
        // No thread removes groups meanwhile.
        let _editing = self.editing.lock();
        self.write_created_groups()?;
        let group = self.tree_space.space.group_at(start).filter(|group| group.start() == start);
        Ok(group.inspect(|group| group.set_moves(true)))
    }

    /// Puts the layout to which a chunk has moved into the trees, in place of the one before.
    pub(super) fn exchange_layouts(&self, group: &Group, to: &Arc<Chunk>) -> Result<()> {
        let _editing = self.editing.lock();
        let (from, space) = (group.chunk(), &self.tree_space.space);
        space.exchange_layouts(group, to.clone());
        self.volume.exchange_layouts();
        self.with_chunk_trees(|trees, devices| replace_chunk(trees, devices, &from, to))?;
        let mut tree = TreeItems::new(self.trees.block_group.clone());
        tree.replace(block_group_key(to), block_group_item(group).as_bytes())
    }

    /// Cuts a group after its last content, and leaves so much free there. Returns whether there
    /// was anything to cut.
    pub(super) fn cut_group(&self, group: &Group, spare_bytes: u64) -> Result<bool> {
        let _editing = self.editing.lock();
        self.write_created_groups()?;
        let space = &self.tree_space.space;
        let from = group.chunk();
        let Some(to) = group.begin_cut(spare_bytes) else { return Ok(false) };
        if let Some(tree) = self.trees.free_space.clone() {
            let mut tree = TreeItems::new(tree);
            let sectorsize = self.volume.sectorsize();
            let before = free_space_of(&from, sectorsize);
            let free = before.load(&tree)?;
            before.delete(&mut tree)?;
            let after = free_space_of(&to, sectorsize);
            after.create(&mut tree)?;
            let mut at = to.logical().0;
            for range in free {
                if at < range.start.min(to.end().0) {
                    after.take(&mut tree, &(at..range.start.min(to.end().0)))?;
                }
                at = range.end;
            }
            if at < to.end().0 {
                after.take(&mut tree, &(at..to.end().0))?;
            }
        }
        let mut tree = TreeItems::new(self.trees.block_group.clone());
        tree.remove(block_group_key(&from))?;
        space.cut(group, to.clone());
        self.volume.replace_chunk(to.clone())?;
        tree.insert(block_group_key(&to), block_group_item(group).as_bytes())?;
        self.with_chunk_trees(|trees, devices| replace_chunk(trees, devices, &from, &to))?;
        Ok(true)
    }

    /// Changes the items of devices in the chunk tree and the device tree.
    pub(super) fn edit_devices(
        &self,
        edit: impl FnOnce(&mut ChunkTrees<'_>) -> Result<()>,
    ) -> Result<()> {
        let _editing = self.editing.lock();
        self.with_chunk_trees(|trees, _| edit(trees))
    }

    /// Whether a commit would remove block groups that the last commit left empty.
    pub(super) fn has_empty_groups(&self) -> bool {
        self.trees.free_space.is_some() && self.tree_space.space.has_empty_groups()
    }

    fn with_chunk_trees(
        &self,
        edit: impl FnOnce(&mut ChunkTrees<'_>, &Devices) -> Result<()>,
    ) -> Result<()> {
        let mut chunk_tree = TreeItems::new(self.trees.chunk.clone());
        let mut dev_tree = TreeItems::new(self.trees.dev.clone());
        // A copy: editing the trees may allocate a chunk, which takes space on devices.
        let devices = self.tree_space.space.with_devices(Clone::clone);
        let mut trees = ChunkTrees {
            chunk_tree: &mut chunk_tree,
            dev_tree: &mut dev_tree,
            chunk_tree_uuid: self.trees.chunk_tree_uuid,
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

/// Extents in the order of their addresses, and how the extent tree changed for each.
struct ChangedExtents<'b> {
    heads: &'b [(Logical, Head)],
    changes: Vec<ExtentChange>,
}

impl ChangedExtents<'_> {
    fn ranges(
        &self,
        are: impl Fn(&Head, ExtentChange) -> bool,
    ) -> impl Iterator<Item = Range<u64>> {
        let extents = self.heads.iter().zip(&self.changes);
        let chosen = extents.filter(move |((_, head), change)| are(head, **change));
        chosen.map(|((logical, head), _)| logical.0..logical.0 + head.len_bytes)
    }

    fn with(&self, wanted: ExtentChange) -> impl Iterator<Item = Range<u64>> {
        self.ranges(move |_, change| change == wanted)
    }

    /// Extents that were allocated and never entered the extent tree.
    fn abandoned(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges(|head, change| change == ExtentChange::Kept && head.is_new)
    }

    /// Data that is gone.
    fn without_checksums(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges(|head, change| {
            let is_gone = match change {
                ExtentChange::Removed => true,
                ExtentChange::Kept => head.is_new,
                ExtentChange::Inserted => false,
            };
            is_gone && head.kind == ExtentKind::Data
        })
    }
}

/// Joins ranges that adjoin, unless the second one `begins` something. They come in order.
fn joined(
    ranges: impl Iterator<Item = Range<u64>>,
    begins: impl Fn(u64) -> bool,
) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start && !begins(range.start) => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_up_to_the_next_group() {
        let join = |ranges: &[Range<u64>]| joined(ranges.iter().cloned(), |at| at == 30);
        assert_eq!(join(&[]), []);
        assert_eq!(join(&[0..10, 10..20, 20..25, 26..30, 30..40]), [0..25, 26..30, 30..40]);
    }
}
