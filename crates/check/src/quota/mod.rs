//! Quotas: the counts of quota groups, counted again.

mod root_sets;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_format::item::{FileExtent, QGROUP_LEVEL_SHIFT};
use larder_format::node::MAX_LEVELS;
use larder_format::{ItemType, Node, objectid};

use crate::blocks::{BlockId, BlockReader, ExpectedBlock, Forest, State};
use crate::context::Context;
use crate::evidence::{QuotaEvidence, QuotaGroupId};
use crate::extents::ExtentTable;
use crate::parallel;
use crate::report::Location;
use crate::roots::RootTree;
use root_sets::{RootSets, SetId, TooMany};
pub(crate) use tree::QuotaTree;
use tree::Status;

/// Bytes referred to, and bytes of these that nothing else refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    rfer: u64,
    excl: u64,
}

/// Counts again what quota groups count, if the tree says that its counts are right.
pub(crate) fn check(
    context: &Context<'_>,
    forest: &Forest,
    extents: &ExtentTable,
    roots: &RootTree,
    tree: &QuotaTree,
) {
    let is_known = forest.blocks().iter().all(|block| block.state == State::Good);
    if !tree.is_counted(context) || !extents.is_whole || !is_known {
        return;
    }
    if let (true, Some(status)) = (tree.is_simple(), tree.status) {
        return compare(context, tree, &count_owners(forest, extents, status));
    }
    // Until its deletion is done, only a part of a subvolume counts.
    if roots.entries.iter().any(|entry| objectid::is_subvolume(entry.id) && entry.is_deleted()) {
        return context.sink.skip("quota counts: subvolumes are being deleted".into());
    }
    match count_roots(context, forest, extents, roots, tree) {
        Ok(counts) => compare(context, tree, &counts),
        Err(TooMany) => {
            context.sink.skip("quota counts: too many snapshots share too little".into());
        }
    }
}

fn compare(context: &Context<'_>, tree: &QuotaTree, counts: &BTreeMap<u64, Counts>) {
    for (id, group) in &tree.groups {
        // The counts of parent groups in simple mode depend on when subvolumes joined them.
        if tree.is_simple() && id >> QGROUP_LEVEL_SHIFT > 0 {
            continue;
        }
        let said = Counts { rfer: group.rfer.get(), excl: group.excl.get() };
        let real = counts.get(id).copied().unwrap_or_default();
        if said != real {
            let evidence = QuotaEvidence::Counts {
                group: QuotaGroupId(*id),
                found_bytes: said.rfer,
                found_exclusive: said.excl,
                expected_bytes: real.rfer,
                expected_exclusive: real.excl,
            };
            context.find(Location::tree(objectid::QUOTA_TREE), evidence);
        }
    }
}

/// Simple quotas: an extent counts for the subvolume that made it, if quotas were on then.
fn count_owners(forest: &Forest, extents: &ExtentTable, status: Status) -> BTreeMap<u64, Counts> {
    let mut counts: BTreeMap<u64, Counts> = BTreeMap::new();
    let mut add = |owner: u64, record: usize| {
        let record = &extents.records[record];
        if record.generation >= status.enable_generation {
            let counts = counts.entry(owner).or_default();
            counts.rfer = counts.rfer.saturating_add(record.len_bytes);
            counts.excl = counts.rfer;
        }
    };
    for (record, owner) in &extents.owners {
        add(*owner, *record);
    }
    for block in forest.blocks().iter().filter(|block| objectid::is_subvolume(block.owner)) {
        if let Some(record) = extents.find(block.logical) {
            add(block.owner, record);
        }
    }
    counts
}

/// Full quotas: an extent counts for every subvolume from which it can be reached.
fn count_roots(
    context: &Context<'_>,
    forest: &Forest,
    extents: &ExtentTable,
    roots: &RootTree,
    tree: &QuotaTree,
) -> Result<BTreeMap<u64, Counts>, TooMany> {
    let mut sets = RootSets::new();
    let blocks = sets_of_blocks(forest, roots, &mut sets)?;
    let mut bytes: HashMap<SetId, u64> = HashMap::new();
    for set in &blocks {
        *bytes.entry(*set).or_default() += context.nodesize as u64;
    }
    for (record, set) in sets_of_data(context, forest, extents, &blocks, &mut sets)? {
        let bytes = bytes.entry(set).or_default();
        *bytes = bytes.saturating_add(extents.records[record as usize].len_bytes);
    }
    let mut counts: BTreeMap<u64, Counts> = BTreeMap::new();
    let mut groups: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    for (set, bytes) in bytes {
        let members = sets.members(set).to_vec();
        let mut within: BTreeMap<u64, usize> = BTreeMap::new();
        for root in &members {
            let groups = groups.entry(*root).or_insert_with(|| tree.groups_of(*root));
            sets.step(groups.len())?;
            for group in &*groups {
                *within.entry(*group).or_default() += 1;
            }
        }
        for (group, roots) in within {
            let counts = counts.entry(group).or_default();
            counts.rfer = counts.rfer.saturating_add(bytes);
            counts.excl =
                counts.excl.saturating_add(if roots == members.len() { bytes } else { 0 });
        }
    }
    Ok(counts)
}

/// For each block the set of subvolumes that reach it.
fn sets_of_blocks(
    forest: &Forest,
    roots: &RootTree,
    sets: &mut RootSets,
) -> Result<Vec<SetId>, TooMany> {
    let mut of_block: Vec<SetId> = vec![0; forest.blocks().len()];
    for root in forest.roots() {
        if objectid::is_subvolume(root.tree) && roots.get(root.tree).is_some() {
            let (at, single) = (root.block as usize, sets.single(root.tree)?);
            of_block[at] = sets.union(of_block[at], single)?;
        }
    }
    let mut by_level: Vec<Vec<BlockId>> = vec![Vec::new(); MAX_LEVELS];
    for (id, block) in forest.blocks().iter().enumerate() {
        by_level[usize::from(block.level)].push(id as BlockId);
    }
    for parent in by_level.iter().rev().flatten() {
        let set = of_block[*parent as usize];
        for pointer in forest.pointers_of(*parent) {
            let at = pointer.block as usize;
            of_block[at] = sets.union(of_block[at], set)?;
        }
    }
    Ok(of_block)
}

/// For each data extent, by number of its record, the set of subvolumes that reach it.
fn sets_of_data(
    context: &Context<'_>,
    forest: &Forest,
    extents: &ExtentTable,
    of_block: &[SetId],
    sets: &mut RootSets,
) -> Result<HashMap<u32, SetId>, TooMany> {
    let leaves: Vec<ExpectedBlock> = (0..of_block.len() as BlockId)
        .filter(|id| forest.block(*id).level == 0 && of_block[*id as usize] != 0)
        .map(|id| forest.wanted(id))
        .collect();
    let batches: Vec<&[ExpectedBlock]> = leaves.chunks(context.batch_blocks()).collect();
    let found = parallel::map(
        context.threads,
        &batches,
        || BlockReader::quiet(context),
        |reader, batch| {
            reader.read(batch);
            let mut found: HashSet<(u32, SetId)> = HashSet::new();
            for (index, wanted) in batch.iter().enumerate() {
                let Some(node) = reader.node(index) else { continue };
                let set = of_block[wanted.block as usize];
                found.extend(data_of(&node, extents).map(|record| (record, set)));
            }
            found
        },
    );
    let mut of_extent: HashMap<u32, SetId> = HashMap::new();
    for (record, set) in found.into_iter().flatten() {
        let entry = of_extent.entry(record).or_default();
        *entry = sets.union(*entry, set)?;
    }
    Ok(of_extent)
}

fn data_of<'a>(node: &Node<'a>, extents: &'a ExtentTable) -> impl Iterator<Item = u32> + use<'a> {
    let items = node.iter_items().filter(|(key, _)| key.item_type == ItemType::EXTENT_DATA);
    items.filter_map(move |(_, data)| {
        let FileExtent::Regular { extent, .. } = FileExtent::parse(data).ok()? else { return None };
        extents.find(extent.disk_bytenr()?.0).map(|record| record as u32)
    })
}
