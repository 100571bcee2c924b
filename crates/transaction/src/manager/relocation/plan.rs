//! What moves with a batch of extents: the extents, and all blocks on the way up from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_btree::Block;
use larder_format::item::FileExtent;
use larder_format::objectid::{FS_TREE, is_subvolume};
use larder_format::{ItemType, Key, Logical};

use super::content::Content;
use crate::error::{Error, Result};
use crate::extent::{Backrefs, FoundExtent, Parent, Referrer};

/// A committed tree block that moves.
pub(super) struct MovingBlock {
    pub(super) block: Block,
    /// Whether the references to what it refers to are by its address.
    pub(super) is_full: bool,
    /// Whether it is the only one that leads to it, and so on up to the root of one subvolume.
    pub(super) is_exclusive: bool,
    /// The references to it, with the addresses of the blocks from which they are; none for a root.
    pub(super) references: Vec<(Referrer, Option<u64>)>,
}

/// A tree block that stays where it is.
pub(super) struct StayingBlock {
    pub(super) block: Block,
    /// Whether the references to what it refers to are by its address.
    pub(super) is_full: bool,
}

/// An extent of data that moves.
pub(super) struct MovingData {
    pub(super) content: Content,
    pub(super) references: Vec<(Referrer, u32)>,
    /// The addresses of the leaves that lead to it.
    pub(super) leaves: Vec<u64>,
}

/// What moves in one commit.
#[derive(Default)]
pub(super) struct Plan {
    /// By their addresses, as everything here.
    pub(super) blocks: BTreeMap<u64, MovingBlock>,
    /// Blocks of the running transaction with pointers to something that moves. They stay.
    pub(super) running: BTreeMap<u64, StayingBlock>,
    /// The subvolumes that begin with a block.
    pub(super) roots: BTreeMap<u64, Vec<u64>>,
    /// Blocks of trees that share nothing, with the ids of the trees.
    pub(super) unshared: BTreeMap<u64, (u64, Block)>,
    pub(super) data: BTreeMap<u64, MovingData>,
    /// For a block of which a part is deleted already, the first child that is left.
    pub(super) partly_deleted: HashMap<u64, usize>,
}

impl Plan {
    /// Adds a tree block and all blocks above it.
    pub(super) fn add_block(
        &mut self,
        backrefs: &Backrefs<'_>,
        generation: u64,
        extent: FoundExtent,
    ) -> Result<()> {
        let mut pending = vec![extent];
        while let Some(extent) = pending.pop() {
            let start = extent.range.start;
            if self.blocks.contains_key(&start) || self.running.contains_key(&start) {
                continue;
            }
            let references = backrefs.counted(&extent)?;
            let unshared = references.iter().find_map(|(referrer, _)| match referrer {
                Referrer::Tree { root } if !is_subvolume(*root) => Some(*root),
                _ => None,
            });
            let block = backrefs.tree_block(&extent, unshared.unwrap_or(FS_TREE))?;
            if extent.generation == generation {
                self.running.insert(start, StayingBlock { block, is_full: extent.is_full });
                continue;
            }
            if let Some(tree) = unshared {
                self.unshared.insert(start, (tree, block));
                continue;
            }
            let (mut parents, mut roots) = (Vec::new(), Vec::new());
            for (referrer, _) in &references {
                match backrefs.parent(&block, *referrer)? {
                    Some(Parent::Block(parent)) => {
                        let at = parent.logical().0;
                        if !parents.contains(&(*referrer, Some(at))) {
                            pending.push(existing(backrefs, parent.logical())?);
                        }
                        parents.push((*referrer, Some(at)));
                    }
                    Some(Parent::Subvolume(id)) => {
                        roots.push(id);
                        parents.push((*referrer, None));
                    }
                    None => {}
                }
            }
            let distinct: BTreeSet<_> = parents.iter().filter_map(|(_, parent)| *parent).collect();
            check_count(&extent, distinct.len() + roots.len(), &references)?;
            for id in &roots {
                let partly = backrefs.partly_deleted(*id)?;
                self.partly_deleted.extend(partly.iter().map(|(at, slot)| (at.0, *slot)));
            }
            if !roots.is_empty() {
                self.roots.insert(start, roots);
            }
            let (is_full, is_exclusive) = (extent.is_full, false);
            let moving = MovingBlock { block, is_full, is_exclusive, references: parents };
            self.blocks.insert(start, moving);
        }
        Ok(())
    }

    /// Adds data, and all blocks above it.
    pub(super) fn add_data(
        &mut self,
        backrefs: &Backrefs<'_>,
        generation: u64,
        extent: &FoundExtent,
        content: Content,
    ) -> Result<()> {
        let references = backrefs.counted(extent)?;
        let mut leaves = BTreeMap::new();
        for (referrer, _) in &references {
            for leaf in backrefs.leaves(extent, *referrer)? {
                let leaf = leaf?;
                leaves.insert(leaf.logical(), leaf);
            }
        }
        let mut pointers = 0;
        for leaf in leaves.values() {
            let at = |place: &(usize, Key, Logical)| place.2.0 == extent.range.start;
            pointers += file_extents(leaf)?.iter().filter(|place| at(place)).count();
        }
        check_count(extent, pointers, &references)?;
        for leaf in leaves.keys() {
            self.add_block(backrefs, generation, existing(backrefs, *leaf)?)?;
        }
        let leaves = leaves.keys().map(|leaf| leaf.0).collect();
        self.data.insert(extent.range.start, MovingData { content, references, leaves });
        Ok(())
    }

    /// Finds out which blocks only one subvolume has. Once, when everything is in the plan.
    pub(super) fn find_exclusive(&mut self) {
        let mut from_top: Vec<_> =
            self.blocks.iter().map(|(start, moving)| (moving.block.level(), *start)).collect();
        from_top.sort_unstable_by(|a, b| b.cmp(a));
        for (_, start) in from_top {
            let moving = &self.blocks[&start];
            let is_exclusive = match moving.references[..] {
                [(_, None)] => true,
                [(_, Some(parent))] => {
                    self.blocks.get(&parent).is_some_and(|parent| parent.is_exclusive)
                }
                _ => false,
            };
            let is_exclusive = is_exclusive && !moving.is_full;
            self.blocks.get_mut(&start).expect("it is there").is_exclusive = is_exclusive;
        }
    }

    /// How many references to extents change at most, before and after each counted.
    pub(super) fn changed_references(&self) -> u64 {
        let blocks = self.blocks.values().map(|moving| {
            let children = if moving.is_exclusive { 0 } else { moving.block.node().nritems() };
            moving.references.len() + children
        });
        let data = self.data.values().map(|moving| moving.references.len());
        2 * blocks.chain(data).sum::<usize>() as u64
    }
}

/// The file extents of a leaf that are on disk: slots, keys, and the addresses of whole extents.
pub(super) fn file_extents(leaf: &Block) -> Result<Vec<(usize, Key, Logical)>> {
    let mut found = Vec::new();
    for (slot, (key, data)) in leaf.node().iter_items().enumerate() {
        if key.item_type != ItemType::EXTENT_DATA {
            continue;
        }
        let owner = leaf.header().owner.get();
        let parsed = FileExtent::parse(data).map_err(|problem| Error::item(owner, key, problem))?;
        if let FileExtent::Regular { extent, .. } = parsed {
            found.extend(extent.disk_bytenr().map(|logical| (slot, key, logical)));
        }
    }
    Ok(found)
}

/// The extent of a tree block that is in use.
fn existing(backrefs: &Backrefs<'_>, logical: Logical) -> Result<FoundExtent> {
    let missing = || Error::extent(logical, "a tree has it but it has no item");
    backrefs.extent_at(logical)?.ok_or_else(missing)
}

/// Fails unless so many pointers lead to an extent as it has references.
fn check_count(
    extent: &FoundExtent,
    pointers: usize,
    references: &[(Referrer, u32)],
) -> Result<()> {
    let counted: u64 = references.iter().map(|(_, count)| u64::from(*count)).sum();
    if counted == pointers as u64 {
        return Ok(());
    }
    let problem = format!("it has {counted} references, but {pointers} pointers lead to it");
    Err(Error::extent(Logical(extent.range.start), problem))
}
