//! Carrying out what is planned.

use std::collections::HashMap;
use std::sync::Arc;

use larder_btree::{Block, LiveTree, Repointing, TreeRoot, TreeView};
use larder_format::item::FileExtentItem;
use larder_format::{Key, Logical};
use zerocopy::FromBytes;

use super::content::Content;
use super::plan::{MovingBlock, MovingData, Plan, StayingBlock, file_extents};
use crate::error::{Error, Result};
use crate::extent::Referrer;
use crate::items::Items;
use crate::manager::{Exclusive, TransactionManager};
use crate::refs::{ExtentKind, ExtentRef, Queued};
use crate::space::SpaceKind;
use crate::tree_items::TreeItems;

/// Where what moves is from now on.
struct Targets {
    blocks: HashMap<u64, Logical>,
    data: HashMap<u64, Logical>,
}

impl Targets {
    /// What changes in a block.
    fn repointing(&self, block: &Block) -> Result<Repointing> {
        let mut repointing = Repointing::default();
        let node = block.node();
        if block.level() > 0 {
            for (slot, pointer) in node.key_pointers().iter().enumerate() {
                let target = self.blocks.get(&pointer.blockptr().0);
                repointing.pointers.extend(target.map(|logical| (slot, *logical)));
            }
            return Ok(repointing);
        }
        for (slot, _, logical) in file_extents(block)? {
            if let Some(target) = self.data.get(&logical.0) {
                let mut data = node.item_data(slot).to_vec();
                let (item, _) = FileExtentItem::mut_from_prefix(&mut data).expect("it was parsed");
                item.extent.disk_bytenr = target.0.into();
                repointing.items.push((slot, data));
            }
        }
        Ok(repointing)
    }
}

impl Plan {
    /// Takes an address for each block that moves. After an error none is taken.
    fn take_space(&self, manager: &TransactionManager) -> Result<HashMap<u64, Logical>> {
        let (space, nodesize) = (manager.space(), u64::from(manager.volume.nodesize()));
        let mut taken = HashMap::with_capacity(self.blocks.len());
        for start in self.blocks.keys() {
            match space.allocate_block(SpaceKind::Metadata) {
                Ok(logical) => drop(taken.insert(*start, logical)),
                Err(error) => {
                    for logical in taken.values() {
                        space.unused(&(logical.0..logical.0 + nodesize))?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Moves everything. Nothing has changed if this fails before it calls `begin`.
    pub(super) fn carry_out(&self, exclusive: &Exclusive<'_>, begin: impl FnOnce()) -> Result<()> {
        let manager = exclusive.manager();
        let data = self.data.iter().map(|(start, moving)| (*start, moving.content.to)).collect();
        let mut targets = Targets { blocks: HashMap::new(), data };
        // Without the addresses yet: that all can be parsed is known before anything changes.
        let staying = self.running.values().map(|staying| &staying.block);
        let all = self.blocks.values().map(|moving| &moving.block).chain(staying);
        all.map(|block| targets.repointing(block)).collect::<Result<Vec<_>>>()?;
        for (tree, block) in self.unshared.values() {
            open_unshared(manager, *tree, block)?;
        }
        targets.blocks = self.take_space(manager)?;
        begin();
        // Threads that only read go on. One that finds the new address must find checksums for it.
        for moving in self.data.values() {
            Self::insert_checksums(manager, &moving.content)?;
        }
        let forest = manager.trees.forest();
        for (start, moving) in &self.blocks {
            let to = targets.blocks[start];
            let mut repointing = targets.repointing(&moving.block)?;
            repointing.is_shared = !moving.is_exclusive;
            forest.move_block(&moving.block, to, &repointing);
            self.move_references(manager, &targets, moving, to)?;
        }
        for StayingBlock { block, .. } in self.running.values() {
            forest.repoint_block(block, &targets.repointing(block)?);
        }
        for moving in self.data.values() {
            self.move_data_references(manager, &targets, moving)?;
        }
        for (start, trees) in &self.roots {
            let (block, logical) = (&self.blocks[start].block, targets.blocks[start]);
            let (level, generation) = (block.level(), manager.generation());
            for tree in trees {
                let root = TreeRoot { tree: *tree, logical, level, generation };
                manager.trees.move_root(exclusive, root)?;
            }
        }
        for (tree, block) in self.unshared.values() {
            copy_unshared(manager, *tree, block)?;
        }
        let nodesize = u64::from(manager.volume.nodesize());
        let blocks = self.blocks.keys().map(|start| *start..start + nodesize);
        let data = self.data.values().map(|moving| moving.content.extent.range.clone());
        let mut ranges: Vec<_> = blocks.chain(data).collect();
        if !ranges.is_empty() {
            ranges.sort_unstable_by_key(|range| range.start);
            exclusive.moved(&ranges);
        }
        Ok(())
    }

    /// The address by which a block refers to others from now on, if it does not by its owner.
    fn full_address(&self, targets: &Targets, block: u64) -> Option<Logical> {
        match (self.blocks.get(&block), self.running.get(&block)) {
            (Some(moving), _) => (!moving.is_exclusive).then(|| targets.blocks[&block]),
            (None, Some(staying)) => staying.is_full.then_some(Logical(block)),
            (None, None) => None,
        }
    }

    /// Moves the references to a block, and those from it to what stays.
    fn move_references(
        &self,
        manager: &TransactionManager,
        targets: &Targets,
        moving: &MovingBlock,
        to: Logical,
    ) -> Result<()> {
        let tree_space = &manager.tree_space;
        let old = tree_space.block_ref(&moving.block);
        let new = ExtentRef { logical: to, ..old };
        for (referrer, parent) in &moving.references {
            let full = parent.and_then(|parent| self.full_address(targets, parent));
            let by_address = full.map(|logical| Referrer::Block { parent: logical.0 });
            tree_space.refs.add_new(new, by_address.unwrap_or(*referrer), 1);
        }
        for (referrer, _) in &moving.references {
            let dropped = tree_space.refs.change(old, *referrer, -1);
            debug_assert_eq!(dropped, Queued::Pending, "it was in the extent tree");
        }
        if moving.is_exclusive {
            return Ok(());
        }
        tree_space.refs.set_full_backref(new);
        let before =
            tree_space.referred_by(&moving.block, moving.is_full.then_some(old.logical))?;
        let after = tree_space.referred_by(&moving.block, Some(to))?;
        let first = self.partly_deleted.get(&old.logical.0).copied().unwrap_or(0);
        for ((child, referrer), (_, by_address)) in before.into_iter().zip(after).skip(first) {
            let moved =
                if child.kind == ExtentKind::Data { &targets.data } else { &targets.blocks };
            if !moved.contains_key(&child.logical.0) {
                let _ = tree_space.refs.change(child, by_address, 1);
                let _ = tree_space.refs.change(child, referrer, -1);
            }
        }
        Ok(())
    }

    /// Moves the references to data.
    fn move_data_references(
        &self,
        manager: &TransactionManager,
        targets: &Targets,
        moving: &MovingData,
    ) -> Result<()> {
        let tree_space = &manager.tree_space;
        let extent = &moving.content.extent;
        let (len_bytes, kind) = (extent.len_bytes(), ExtentKind::Data);
        let old = ExtentRef { logical: Logical(extent.range.start), len_bytes, kind };
        let new = ExtentRef { logical: moving.content.to, len_bytes, kind };
        for leaf in &moving.leaves {
            let committed = self.blocks.get(leaf).map(|moving| &moving.block);
            let staying = || self.running.get(leaf).map(|staying| &staying.block);
            let block = committed.or_else(staying).expect("it is in the plan");
            let full = self.full_address(targets, *leaf);
            for (child, referrer) in tree_space.referred_by(block, full)? {
                if child.logical == old.logical {
                    tree_space.refs.add_new(new, referrer, 1);
                }
            }
        }
        for (referrer, count) in &moving.references {
            let _ = tree_space.refs.change(old, *referrer, -i64::from(*count));
        }
        Ok(())
    }

    fn insert_checksums(manager: &TransactionManager, content: &Content) -> Result<()> {
        let sectorsize = u64::from(manager.volume.sectorsize());
        let mut at = content.to.0;
        let sums = content.sums.as_deref().unwrap_or_default();
        for run in sums.chunk_by(|a, b| a.is_some() == b.is_some()) {
            let sums: Vec<u8> = run.iter().flatten().flatten().copied().collect();
            if !sums.is_empty() {
                manager.bookkeeping.insert_checksums(Logical(at), &sums)?;
            }
            at += run.len() as u64 * sectorsize;
        }
        Ok(())
    }
}

/// Makes a tree that shares nothing copy one of its blocks, unless it did so with another one.
fn copy_unshared(manager: &TransactionManager, id: u64, block: &Block) -> Result<()> {
    let tree = open_unshared(manager, id, block)?;
    let key = block.node().first_key().unwrap_or(Key::MIN);
    let now = TreeView::Live(tree.clone()).block_at(key, block.level())?;
    if now.is_none_or(|now| now.logical() != block.logical()) {
        return Ok(());
    }
    if block.node().nritems() > 0 {
        return Ok(tree.modify(key, |_| ())?);
    }
    // An empty tree is one leaf.
    let mut items = TreeItems::new(tree);
    items.insert(Key::MIN, &[])?;
    items.remove(Key::MIN)
}

/// The tree that has a block, and shares nothing.
fn open_unshared(manager: &TransactionManager, id: u64, block: &Block) -> Result<Arc<LiveTree>> {
    let missing = || Error::extent(block.logical(), format!("there is no tree {id} that has it"));
    manager.trees.open(id)?.ok_or_else(missing)
}
