//! Trees of files: subvolumes, snapshots, data relocation.
//!
//! Threads read every leaf once, in order of addresses, and summarize it. Then the summaries are
//! combined along each tree; those of subtrees that trees share are combined once.
//!
//! Memory: about 400 bytes for the summary of each leaf, twice that while they are gathered.

mod extent_data;
mod fragment;
mod inode_item;
mod leaf;
mod orphans;
mod relations;
mod summary;
mod sums;

use std::collections::HashMap;

use larder_format::objectid;

pub(crate) use inode_item::check as check_inode_item;
pub(crate) use leaf::name_problem;
pub(crate) use orphans::Orphans;
pub(crate) use sums::{Link, Sums};

use crate::blocks::{BlockFacts, BlockId, BlockReader, ExpectedBlock, Forest, State, TreeRoot};
use crate::checksums::ChecksumRanges;
use crate::context::Context;
use crate::evidence::{InodeEvidence, TreeEvidence};
use crate::extents::ExtentTable;
use crate::parallel;
use crate::progress::Phase;
use crate::report::Location;
use crate::roots::{RootEntry, RootTree};
use leaf::LeafInspector;
use summary::Summary;

/// Most trees whose relations are explained one by one. Snapshots share their faults.
const EXPLAINED_TREES: usize = 8;

/// The summaries of all leaves.
pub(crate) struct Leaves {
    summaries: Vec<Summary>,
    /// Number of a summary, by block.
    by_block: HashMap<BlockId, u32>,
}

/// Reads the leaves of all trees of files and checks their items.
pub(crate) fn read_leaves(
    context: &Context<'_>,
    forest: &mut Forest,
    extents: &ExtentTable,
    checksums: &ChecksumRanges,
) -> Leaves {
    let mut wanted: Vec<ExpectedBlock> = (0..forest.blocks().len() as BlockId)
        .filter(|id| {
            let block = forest.block(*id);
            block.level == 0 && block.state == State::Unread && objectid::is_file_tree(block.tree)
        })
        .map(|id| forest.wanted(id))
        .collect();
    wanted.sort_unstable_by_key(|wanted| wanted.logical);
    let total_bytes = (wanted.len() * context.nodesize) as u64;
    context.progress.begin(Phase::Files, total_bytes);
    let space = Some((extents, checksums));
    let batches: Vec<&[ExpectedBlock]> = wanted.chunks(context.batch_blocks()).collect();
    let results = parallel::map(
        context.threads,
        &batches,
        || BlockReader::new(context),
        |reader, batch| {
            reader.read(batch);
            let read = batch.iter().enumerate().map(|(index, wanted)| {
                let space = if wanted.tree == objectid::TREE_LOG { None } else { space };
                let inspector = LeafInspector { context, space };
                let node = reader.node(index)?;
                Some((BlockFacts::from(&node), inspector.summarize(wanted, &node)))
            });
            let read: Vec<_> = read.collect();
            context.progress.advance((batch.len() * context.nodesize) as u64);
            read
        },
    );
    let mut leaves = Leaves {
        summaries: Vec::with_capacity(wanted.len()),
        by_block: HashMap::with_capacity(wanted.len()),
    };
    for (wanted, read) in wanted.iter().zip(results.into_iter().flatten()) {
        let (facts, summary) = read.unzip();
        forest.record(wanted.block, facts);
        if let Some(summary) = summary {
            leaves.by_block.insert(wanted.block, leaves.summaries.len() as u32);
            leaves.summaries.push(summary);
        }
    }
    leaves
}

/// Combines the leaves of each tree and checks the relations between its inodes.
pub(crate) fn relate(context: &Context<'_>, forest: &Forest, leaves: &Leaves, roots: &RootTree) {
    let mut composer = Composer { context, forest, leaves, inner: HashMap::new() };
    let names = SubvolumeNames::new(context, roots);
    let (mut explained, mut unexplained) = (0, 0);
    for root in forest.roots() {
        let Some(entry) = roots.get(root.tree) else { continue };
        let has_files = entry.is_live_subvolume() || root.tree == objectid::DATA_RELOC_TREE;
        if !has_files {
            continue;
        }
        let location = Location::tree(root.tree);
        let summary = composer.tree(root);
        if summary.is_incomplete {
            context.find(location, TreeEvidence::UnreadableParts);
            continue;
        }
        let sums = summary.close(context, root.tree);
        // A list of orphans may be longer than necessary. Only the second reading can tell.
        let own = Sums { subvolumes: 0, orphans: 0, ..sums };
        let relates = own == Sums::default() && names.agree_with(entry, &sums);
        if relates && sums.orphans == 0 {
            continue;
        }
        if explained < EXPLAINED_TREES {
            // Snapshots of what is being deleted have no fault, however many there are.
            explained += usize::from(relations::explain(context, forest, root, roots));
        } else if !relates {
            context.find(location, InodeEvidence::InodesDoNotRelate);
        } else {
            unexplained += 1;
        }
    }
    if unexplained > 0 {
        let what = "whether inodes without names are listed for deletion";
        context.sink.skip(format!("in {unexplained} trees {what}"));
    }
}

/// The names of subvolumes in the root tree.
struct SubvolumeNames {
    /// Fingerprints of the names in each tree.
    sums: HashMap<u64, u64>,
}

impl SubvolumeNames {
    fn new(context: &Context<'_>, roots: &RootTree) -> Self {
        let mut sums: HashMap<u64, u64> = HashMap::new();
        for name in &roots.refs {
            let link = Link {
                directory: name.dirid,
                index: name.sequence,
                name: &name.name,
                target: name.child,
            };
            let sum = sums.entry(name.parent).or_default();
            *sum = sum.wrapping_add(link.subvolume_fingerprint(context));
        }
        Self { sums }
    }

    /// Whether the subvolume entries of a tree with these sums are those in the root tree.
    fn agree_with(&self, tree: &RootEntry, sums: &Sums) -> bool {
        let wanted = self.sums.get(&tree.id).copied().unwrap_or(0);
        sums.subvolumes == wanted || tree.is_snapshot()
    }
}

/// Combines summaries.
struct Composer<'a, 'v> {
    context: &'a Context<'v>,
    forest: &'a Forest,
    leaves: &'a Leaves,
    /// Summaries of inner blocks.
    inner: HashMap<BlockId, Summary>,
}

impl Composer<'_, '_> {
    fn tree(&mut self, root: &TreeRoot) -> Summary {
        if !self.forest.is_sound_root(root) {
            return Summary::incomplete();
        }
        let mut whole = Summary::default();
        self.append(&mut whole, root.tree, root.block);
        whole
    }

    fn append(&mut self, to: &mut Summary, tree: u64, id: BlockId) {
        if self.forest.block(id).level == 0 {
            match self.leaves.by_block.get(&id) {
                Some(number) => {
                    to.append(self.context, tree, &self.leaves.summaries[*number as usize]);
                }
                None => to.append(self.context, tree, &Summary::incomplete()),
            }
            return;
        }
        if !self.inner.contains_key(&id) {
            let summary = self.compose(tree, id);
            self.inner.insert(id, summary);
        }
        to.append(self.context, tree, &self.inner[&id]);
    }

    fn compose(&mut self, tree: u64, id: BlockId) -> Summary {
        let mut summary = Summary::default();
        for slot in 0..self.forest.pointers_of(id).len() {
            match self.forest.sound_child(id, slot) {
                Some(child) => self.append(&mut summary, tree, child),
                None => summary.append(self.context, tree, &Summary::incomplete()),
            }
        }
        summary
    }
}
