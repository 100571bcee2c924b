//! Finds which references differ, for extents where the sums of their fingerprints do.
//!
//! Reads the trees a second time and keeps exact references, but only those of known wrong extents,
//! and of at most [`EXPLAINED_EXTENTS`] of these.

use std::collections::{BTreeMap, HashMap};

use larder_format::item::{BackRef, Extent, FileExtent};
use larder_format::{ItemType, Node, objectid};

use super::references::{LeafReferences, for_each_tree_reference, is_every_block_known};
use super::table::ExtentTable;
use crate::blocks::{BlockId, BlockReader, ExpectedBlock, Forest, TreeRoot, for_each_item_again};
use crate::context::Context;
use crate::evidence::ExtentEvidence;
use crate::report::Location;

/// Most extents that are explained one by one.
const EXPLAINED_EXTENTS: usize = 4096;

/// How often a reference is in the extent tree and how often a tree makes it.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    known: u64,
    made: u64,
}

/// References of the extents in question, by address of the extent.
struct Ledger {
    extents: BTreeMap<u64, HashMap<BackRef, Counts>>,
}

impl Ledger {
    fn counts(&mut self, extent: u64, back_ref: BackRef) -> Option<&mut Counts> {
        let whatever_count = match back_ref {
            BackRef::Data { root, objectid, offset, .. } => {
                BackRef::Data { root, objectid, offset, count: 0 }
            }
            BackRef::SharedData { parent, .. } => BackRef::SharedData { parent, count: 0 },
            other => other,
        };
        Some(self.extents.get_mut(&extent)?.entry(whatever_count).or_default())
    }

    fn add_made(&mut self, extent: u64, back_ref: BackRef) {
        if let Some(counts) = self.counts(extent, back_ref) {
            counts.made += 1;
        }
    }

    fn add_known(&mut self, extent: u64, back_ref: BackRef) {
        if let Some(counts) = self.counts(extent, back_ref) {
            counts.known += u64::from(back_ref.count());
        }
    }
}

/// Reports how the references in the extent tree and in other trees differ.
pub(crate) fn explain(
    context: &Context<'_>,
    extents: &ExtentTable,
    forest: &Forest,
    extent_root: &TreeRoot,
    is_every_tree_known: bool,
) {
    let mut wrong = extents.records.iter().filter(|record| !record.is_balanced());
    let explained = wrong.by_ref().take(EXPLAINED_EXTENTS);
    let mut ledger =
        Ledger { extents: explained.map(|record| (record.start, HashMap::new())).collect() };
    if ledger.extents.is_empty() || !extents.is_whole {
        return;
    }
    read_known(context, forest, extent_root, &mut ledger);
    for_each_tree_reference(forest, extents, |block, back_ref| {
        ledger.add_made(forest.block(block).logical, back_ref);
    });
    read_made(context, extents, forest, &mut ledger);
    let is_whole = is_every_tree_known && is_every_block_known(forest);
    for (start, references) in &ledger.extents {
        report(context, *start, references, is_whole);
    }
    let unexplained = wrong.count();
    if unexplained > 0 {
        let more = ExtentEvidence::MoreDiffer { count: unexplained as u64 };
        context.find(Location::tree(objectid::EXTENT_TREE), more);
    }
}

fn read_known(context: &Context<'_>, forest: &Forest, root: &TreeRoot, ledger: &mut Ledger) {
    for_each_item_again(context, forest, root, |item| {
        let extent = item.key.objectid;
        match item.key.item_type {
            ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => {
                let Ok(parsed) = Extent::parse(item.key, item.data) else { return };
                for back_ref in parsed.back_refs().flatten() {
                    ledger.add_known(extent, back_ref.back_ref);
                }
            }
            _ => {
                if let Ok(back_ref) = BackRef::parse_keyed(item.key, item.data) {
                    ledger.add_known(extent, back_ref);
                }
            }
        }
    });
}

/// Finds references to data in every leaf that may hold files: leaves of subvolumes, and those of
/// the root tree with the inodes of the v1 space cache.
fn read_made(context: &Context<'_>, extents: &ExtentTable, forest: &Forest, ledger: &mut Ledger) {
    let holds_files = |tree: u64| {
        tree == objectid::ROOT_TREE || (objectid::is_file_tree(tree) && tree != objectid::TREE_LOG)
    };
    let leaves: Vec<ExpectedBlock> = (0..forest.blocks().len() as BlockId)
        .filter(|id| forest.block(*id).level == 0 && holds_files(forest.block(*id).tree))
        .map(|id| forest.wanted(id))
        .collect();
    let mut reader = BlockReader::quiet(context);
    for batch in leaves.chunks(context.batch_blocks()) {
        reader.read(batch);
        for (index, wanted) in batch.iter().enumerate() {
            if let Some(node) = reader.node(index) {
                read_leaf(context, extents, wanted, &node, ledger);
            }
        }
    }
}

fn read_leaf(
    context: &Context<'_>,
    extents: &ExtentTable,
    wanted: &ExpectedBlock,
    node: &Node<'_>,
    ledger: &mut Ledger,
) {
    let references =
        LeafReferences::new(context, extents, wanted.logical, node.header().owner.get());
    let items = node.iter_items().filter(|(key, _)| key.item_type == ItemType::EXTENT_DATA);
    for (key, data) in items {
        if let Ok(FileExtent::Regular { extent, .. }) = FileExtent::parse(data) {
            let offset = key.offset.wrapping_sub(extent.offset.get());
            let back_ref = references.back_ref(key.objectid, offset);
            ledger.add_made(extent.disk_bytenr.get(), back_ref);
        }
    }
}

fn report(
    context: &Context<'_>,
    start: u64,
    references: &HashMap<BackRef, Counts>,
    is_whole: bool,
) {
    let location = Location::tree(objectid::EXTENT_TREE).at(start);
    if references.values().all(|counts| counts.made == 0) {
        if is_whole {
            context.find(location, ExtentEvidence::Unreferenced);
        }
        return;
    }
    for (reference, Counts { known, made }) in references {
        let (reference, found, expected) = (*reference, *known, *made);
        if *known == 0 && *made > 0 {
            context.find(location, ExtentEvidence::NotKnown { reference, expected });
        } else if !is_whole {
            // An unreadable block may make the others.
        } else if *made == 0 && *known > 0 {
            context.find(location, ExtentEvidence::NotMade { reference });
        } else if known != made {
            context.find(location, ExtentEvidence::Count { reference, found, expected });
        }
    }
}
