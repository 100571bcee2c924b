//! Which subvolumes the result looks into.

use std::cmp::Reverse;

use larder_format::objectid::FS_TREE;

use crate::forest::Forest;
use crate::root_sets::{RootSets, SetId};
use crate::roots::Roots;

/// The opened subvolumes.
pub(crate) struct Opened {
    /// For each tree by its number.
    is_opened: Vec<bool>,
    /// For each set the first opened one in it: a leaf is counted when that one is read.
    first: Vec<Option<u32>>,
}

impl Opened {
    /// No subvolume is opened.
    pub(crate) fn none(sets: &RootSets) -> Self {
        Self { is_opened: Vec::new(), first: vec![None; sets.len()] }
    }

    /// Whether the tree with this number is opened.
    pub(crate) fn has(&self, root: u32) -> bool {
        self.is_opened.get(root as usize).is_some_and(|is_opened| *is_opened)
    }

    /// The first opened tree of a set that a leaf has.
    pub(crate) fn first(&self, set: SetId) -> Option<u32> {
        self.first[set as usize]
    }
}

/// Opens subvolumes as long as no more leaves are read again than there are: the top level, the
/// `default` one, those that can change and are no snapshots, others that can change, and the
/// newest of the rest.
pub(crate) fn choose(roots: &Roots, sets: &RootSets, forest: &Forest, default: u64) -> Opened {
    let mut order: Vec<_> = roots.subvolumes().collect();
    order.sort_by_key(|(_, info)| {
        let is_wanted = (info.id != FS_TREE, info.id != default);
        (is_wanted, info.is_read_only, info.is_snapshot, Reverse(info.id))
    });
    let mut budget = forest.leaves.len() as u64;
    let mut is_opened = vec![false; roots.all.len()];
    let mut first: Vec<Option<u32>> = vec![None; sets.len()];
    for (root, _) in order {
        let with: Vec<usize> =
            (0..sets.len()).filter(|set| has(sets, *set as SetId, root)).collect();
        let again = with.iter().filter(|set| first[**set].is_some());
        let again: u64 = again.map(|set| forest.leaf_counts[*set]).sum();
        if again <= budget {
            budget -= again;
            is_opened[root as usize] = true;
            for set in with {
                first[set] = Some(first[set].map_or(root, |known| known.min(root)));
            }
        }
    }
    Opened { is_opened, first }
}

fn has(sets: &RootSets, set: SetId, root: u32) -> bool {
    let runs = sets.runs(set);
    let after = runs.partition_point(|(first, _)| *first <= root);
    after > 0 && runs[after - 1].1 >= root
}
