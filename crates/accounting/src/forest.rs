//! All trees at once: the leaves that they reach, each with the trees that share it.

use std::collections::HashMap;
use std::mem;

use larder_btree::Expected;
use larder_filesystem::{Filesystem, Result};
use larder_format::Logical;
use larder_format::node::MAX_LEVELS;

use crate::root_sets::{RootSets, SetId};
use crate::roots::Roots;
use crate::watch::{AccountingPhase, Watch};

/// A block that a pointer leads to.
#[derive(Clone, Copy)]
pub(crate) struct Met {
    generation: u64,
    /// A tree that has it.
    root: u32,
    /// The trees that have it.
    pub(crate) set: SetId,
}

/// The leaves of all trees.
pub(crate) struct Forest {
    /// By address.
    pub(crate) leaves: HashMap<u64, Met>,
    /// Leaves by set.
    pub(crate) leaf_counts: Vec<u64>,
    /// Blocks of all levels by set.
    pub(crate) block_counts: Vec<u64>,
}

/// Blocks that were met and not yet read, by level and address.
type Pending = [HashMap<u64, Met>; MAX_LEVELS];

impl Met {
    /// What the block must be.
    pub(crate) fn expected(&self, roots: &Roots, logical: u64, level: u8) -> Expected {
        let (tree, generation) = (roots.id(self.root), self.generation);
        Expected { tree, logical: Logical(logical), generation, level, first_key: None }
    }
}

impl Forest {
    /// Reads the inner blocks of all trees. No block is read twice, and each pointer leads one
    /// level down: no image makes it endless.
    pub(crate) fn grow(
        filesystem: &Filesystem,
        roots: &Roots,
        sets: &mut RootSets,
        watch: &mut Watch<'_>,
    ) -> Result<Self> {
        let mut pending = Pending::default();
        for (number, root) in (0..).zip(&roots.all) {
            let at = root.tree.root();
            let met = Met { generation: at.generation, root: number, set: sets.single(number)? };
            if let Some(level) = pending.get_mut(usize::from(at.level)) {
                meet(level, sets, at.logical.0, met)?;
            }
        }
        let mut block_counts = Vec::new();
        let mut done = 0;
        for level in (1..MAX_LEVELS).rev() {
            let mut blocks: Vec<(u64, Met)> = mem::take(&mut pending[level]).into_iter().collect();
            blocks.sort_unstable_by_key(|(logical, _)| *logical);
            let total = done + blocks.len() as u64;
            for (logical, met) in blocks {
                watch.tell(AccountingPhase::Trees, done, total)?;
                done += 1;
                count(&mut block_counts, met.set);
                let expected = met.expected(roots, logical, level as u8);
                let block = match filesystem.cache().read(&expected) {
                    Ok(fetched) => fetched.block,
                    Err(error) => {
                        watch.note(&error.into());
                        continue;
                    }
                };
                // A block above the place where a deletion stands belongs to that tree alone.
                let gone =
                    match sets.only(met.set).and_then(|root| roots.all[root as usize].dropped) {
                        Some((key, at)) if level as u8 >= at => block.node().child_slot(key),
                        _ => 0,
                    };
                for pointer in &block.node().key_pointers()[gone..] {
                    let child = Met { generation: pointer.generation.get(), ..met };
                    meet(&mut pending[level - 1], sets, pointer.blockptr().0, child)?;
                }
            }
        }
        let leaves = mem::take(&mut pending[0]);
        let mut leaf_counts = Vec::new();
        for leaf in leaves.values() {
            count(&mut leaf_counts, leaf.set);
            count(&mut block_counts, leaf.set);
        }
        leaf_counts.resize(sets.len(), 0);
        block_counts.resize(sets.len(), 0);
        Ok(Self { leaves, leaf_counts, block_counts })
    }
}

/// Notes that the trees of `met` lead to the block at `logical`.
fn meet(level: &mut HashMap<u64, Met>, sets: &mut RootSets, logical: u64, met: Met) -> Result<()> {
    let known = level.entry(logical).or_insert(met);
    known.set = sets.union(known.set, met.set)?;
    Ok(())
}

fn count(counts: &mut Vec<u64>, set: SetId) {
    let index = set as usize;
    if counts.len() <= index {
        counts.resize(index + 1, 0);
    }
    counts[index] += 1;
}
