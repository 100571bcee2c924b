//! The references that trees make, subtracted from those in the extent tree.
//!
//! A block refers to its children, and a leaf of a file tree to data. Whether such a reference
//! counts the block's owner or the block's address depends on the block alone; so each block counts
//! once, however many trees share it.

use larder_format::item::BackRef;
use larder_format::objectid;

use super::table::{ExtentRecord, ExtentTable};
use crate::blocks::forest::Block;
use crate::blocks::{BlockId, Forest, Item, State};
use crate::context::Context;
use crate::evidence::{BlockEvidence, ExtentEvidence, LogEvidence};
use crate::report::Location;
use crate::roots::{RootEntry, RootTree};

/// The fingerprint of a reference, without its count.
pub(crate) fn fingerprint(context: &Context<'_>, back_ref: &BackRef) -> u64 {
    let fingerprints = &context.fingerprints;
    let what = u64::from(back_ref.item_type().0);
    match *back_ref {
        BackRef::TreeBlock { root } | BackRef::Owner { root } => fingerprints.of(what, [root]),
        BackRef::SharedBlock { parent } | BackRef::SharedData { parent, .. } => {
            fingerprints.of(what, [parent])
        }
        BackRef::Data { root, objectid, offset, .. } => {
            fingerprints.of(what, [root, objectid, offset])
        }
    }
}

/// A reference to data in a file extent item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataReference<'l> {
    pub(crate) item: Item<'l>,
    pub(crate) start: u64,
    pub(crate) len_bytes: u64,
    /// File offset less offset in the extent.
    pub(crate) offset: u64,
    /// Whether the file has data there, and not only preallocated space.
    pub(crate) is_written: bool,
}

/// How a leaf refers to data.
pub(crate) struct LeafReferences<'c, 'v> {
    context: &'c Context<'v>,
    extents: &'c ExtentTable,
    leaf: u64,
    owner: u64,
    is_full: bool,
}

impl<'c, 'v> LeafReferences<'c, 'v> {
    /// How the leaf at the address `leaf`, made by the tree `owner`, refers to data.
    pub(crate) fn new(
        context: &'c Context<'v>,
        extents: &'c ExtentTable,
        leaf: u64,
        owner: u64,
    ) -> Self {
        Self { context, extents, leaf, owner, is_full: is_full(extents, leaf) }
    }

    /// The back reference that belongs to a reference.
    pub(crate) fn back_ref(&self, ino: u64, offset: u64) -> BackRef {
        if self.is_full {
            BackRef::SharedData { parent: self.leaf, count: 1 }
        } else {
            BackRef::Data { root: self.owner, objectid: ino, offset, count: 1 }
        }
    }

    /// Subtracts a reference from those in the extent tree.
    pub(crate) fn add_data(&self, reference: &DataReference<'_>) {
        let DataReference { item, start, len_bytes, offset, is_written } = reference;
        let Some(record) = self.extents.get(*start) else {
            if self.extents.is_whole {
                item.find(self.context, ExtentEvidence::NoExtentAt { start: *start });
            }
            return;
        };
        if !record.is_data() || record.len_bytes != *len_bytes {
            let mismatch = ExtentEvidence::OfData {
                start: *start,
                found_bytes: *len_bytes,
                listed_bytes: record.len_bytes,
                is_data: record.is_data(),
            };
            item.find(self.context, mismatch);
        }
        if *is_written {
            record.set_written();
        }
        let back_ref = self.back_ref(item.key.objectid, *offset);
        record.debit(fingerprint(self.context, &back_ref));
    }
}

fn is_full(extents: &ExtentTable, block: u64) -> bool {
    extents.get(block).is_some_and(ExtentRecord::is_full_back_ref)
}

/// Calls `visit` with every reference from a block or a root to a tree block that has an extent.
/// Blocks of log trees have none.
pub(crate) fn for_each_tree_reference(
    forest: &Forest,
    extents: &ExtentTable,
    mut visit: impl FnMut(BlockId, BackRef),
) {
    for root in forest.roots() {
        let block = forest.block(root.block);
        match root.tree {
            objectid::TREE_LOG => {}
            // The root of a relocation tree is its own parent.
            objectid::TREE_RELOC => {
                visit(root.block, BackRef::SharedBlock { parent: block.logical });
            }
            tree => visit(root.block, BackRef::TreeBlock { root: tree }),
        }
    }
    for (id, block) in forest.blocks().iter().enumerate() {
        if block.tree == objectid::TREE_LOG {
            continue;
        }
        let back_ref = if is_full(extents, block.logical) {
            BackRef::SharedBlock { parent: block.logical }
        } else {
            BackRef::TreeBlock { root: block.owner }
        };
        for pointer in forest.pointers_of(id as BlockId) {
            visit(pointer.block, back_ref);
        }
    }
}

/// Compares all tree blocks with their extents, and subtracts their references from those in the
/// extent tree.
pub(crate) fn add_tree_blocks(
    context: &Context<'_>,
    extents: &ExtentTable,
    forest: &Forest,
    roots: &RootTree,
) {
    for block in forest.blocks() {
        if block.tree == objectid::TREE_LOG {
            check_log_block(context, extents, block);
        } else {
            check_block(context, extents, block);
        }
    }
    for_each_tree_reference(forest, extents, |block, back_ref| {
        if let Some(record) = extents.get(forest.block(block).logical) {
            record.debit(fingerprint(context, &back_ref));
        }
    });
    if roots.is_whole && extents.is_whole && is_every_block_known(forest) && !is_relocating(forest)
    {
        check_owners(context, extents, forest, roots);
    }
}

/// Whether a crash has interrupted a relocation. It moves the blocks of a tree, which then refers to
/// the moved ones: until it has gone through the trees that share them, these have blocks that their
/// owner has left.
fn is_relocating(forest: &Forest) -> bool {
    forest.roots().iter().any(|root| root.tree == objectid::TREE_RELOC)
}

/// Checks that the tree that owns a block refers to it, unless the block is marked as one that its
/// owner may have left: then its references count the block's address. The deletion of a subvolume
/// first leaves blocks and then marks them, perhaps in another transaction.
fn check_owners(context: &Context<'_>, extents: &ExtentTable, forest: &Forest, roots: &RootTree) {
    let mut is_owned = vec![false; forest.blocks().len()];
    for_each_tree_reference(forest, extents, |block, back_ref| {
        let owner = forest.block(block).owner;
        is_owned[block as usize] |= back_ref == BackRef::TreeBlock { root: owner };
    });
    for (block, is_owned) in forest.blocks().iter().zip(is_owned) {
        // Other trees share nothing: the owners of their blocks were checked as the blocks were
        // read.
        let may_be_shared = objectid::is_file_tree(block.tree) && block.tree != objectid::TREE_LOG;
        let is_left = roots.get(block.owner).is_some_and(RootEntry::is_deleted);
        if is_owned || is_left || !may_be_shared || is_full(extents, block.logical) {
            continue;
        }
        let location = Location::tree(block.tree).at(block.logical);
        context.find(location, BlockEvidence::OwnerLacksIt { owner: block.owner });
    }
}

fn check_block(context: &Context<'_>, extents: &ExtentTable, block: &Block) {
    let location = Location::tree(block.tree).at(block.logical);
    let Some(record) = extents.get(block.logical) else {
        if extents.is_whole {
            context.find(location, ExtentEvidence::NoExtentOfBlock);
        }
        return;
    };
    let is_same = record.is_tree_block()
        && record.level == block.level
        && record.generation == block.generation
        && record.len_bytes == context.nodesize as u64;
    if block.state == State::Good && !is_same {
        let mismatch = ExtentEvidence::OfBlock {
            level: block.level,
            generation: block.generation,
            listed_level: record.level,
            listed_generation: record.generation,
            is_block: record.is_tree_block(),
        };
        context.find(location, mismatch);
    }
}

fn check_log_block(context: &Context<'_>, extents: &ExtentTable, block: &Block) {
    let end = block.logical.saturating_add(context.nodesize as u64);
    if let Some(record) = extents.within(block.logical, end).first() {
        let (start, len_bytes) = (record.start, record.len_bytes);
        let location = Location::tree(block.tree).at(block.logical);
        context.find(location, LogEvidence::InExtent { start, len_bytes });
    }
}

/// Whether every block that may refer to extents was read.
pub(crate) fn is_every_block_known(forest: &Forest) -> bool {
    forest.blocks().iter().all(|block| block.state == State::Good)
}
