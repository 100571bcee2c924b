//! States: the roots of the root tree that were found, and what is missing below them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::item::{RootItem, Timespec};
use larder_format::objectid::{
    DATA_RELOC_TREE, EXTENT_TREE, ROOT_TREE, TREE_LOG, TREE_RELOC, is_subvolume,
};
use larder_format::{ItemType, Logical, Node, Superblock};
use larder_volume::StateRoot;

use crate::RescueError;
use crate::blocks::{Blocks, Pointer};
use crate::evidence::Evidence;
use crate::missing::Missing;
use crate::progress::Tracker;

/// Where the root of a state is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The newest superblock: it is the last commit.
    Superblock,
    /// A backup root of the newest superblock.
    Backup,
    /// Nowhere: it was found on a device.
    Device,
}

/// A commit whose root tree was found.
#[derive(Clone, Debug)]
pub struct State {
    /// Its generation, which names it.
    pub generation: u64,
    /// Address of the root of its root tree.
    pub root: Logical,
    /// Level of that root.
    pub level: u8,
    /// The last change of a file or directory in it.
    pub time: Option<Timespec>,
    /// Where its root is named.
    pub origin: Origin,
    /// How many subvolumes it has, as far as its root tree is there.
    pub subvolumes: usize,
    /// The blocks that are missing, by tree. A missing node counts once, whatever was below it.
    pub missing: BTreeMap<u64, u64>,
}

impl State {
    /// Whether every block of its trees is there.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether its root is there.
    pub(crate) fn has_root(&self) -> bool {
        self.subvolumes > 0 || !self.missing.contains_key(&ROOT_TREE)
    }

    /// Whether every block is there that leads to files or their names.
    pub fn has_all_files(&self) -> bool {
        !self.missing.keys().any(|tree| *tree == ROOT_TREE || is_subvolume(*tree))
    }
}

impl From<&State> for StateRoot {
    fn from(state: &State) -> Self {
        Self { root: state.root, level: state.level, generation: state.generation }
    }
}

/// The states, the newest first; one for each generation.
pub(crate) fn states(
    evidence: &Evidence,
    blocks: &Blocks,
    tracker: &Tracker<'_>,
) -> Result<Vec<State>, RescueError> {
    let mut walk = Walk::new(blocks);
    let mut best: BTreeMap<u64, State> = BTreeMap::new();
    for (root, origin) in candidates(evidence, blocks) {
        tracker.advance(0)?;
        let Some(state) = walk.state(root, origin) else { continue };
        let rank = |state: &State| (state.origin != Origin::Device, state.is_complete());
        match best.get(&state.generation) {
            Some(other) if rank(other) >= rank(&state) => {}
            _ => drop(best.insert(state.generation, state)),
        }
    }
    Ok(best.into_values().rev().collect())
}

/// The roots of the root tree that a superblock names.
pub(crate) fn named(superblock: &Superblock) -> Vec<(Pointer, Origin)> {
    let newest = Pointer {
        logical: superblock.root.get(),
        generation: superblock.generation.get(),
        level: superblock.root_level,
    };
    let backups = superblock.super_roots.iter().map(|backup| Pointer {
        logical: backup.tree_root.get(),
        generation: backup.tree_root_gen.get(),
        level: backup.tree_root_level,
    });
    let is_earlier = |it: &Pointer| it.logical != 0 && it.generation < newest.generation;
    let backups = backups.filter(is_earlier).map(|root| (root, Origin::Backup));
    [(newest, Origin::Superblock)].into_iter().chain(backups).collect()
}

/// Blocks that may be roots of the root tree.
fn candidates(evidence: &Evidence, blocks: &Blocks) -> Vec<(Pointer, Origin)> {
    let mut candidates = named(&evidence.superblock);
    // The root is above all other blocks of its generation. A block that a transaction wrote twice
    // may be as high.
    let mut highest: BTreeMap<u64, u8> = BTreeMap::new();
    let in_root_tree = || blocks.all().iter().filter(|block| block.owner == ROOT_TREE);
    for block in in_root_tree() {
        let level = highest.entry(block.generation).or_default();
        *level = block.level.max(*level);
    }
    let is_known: BTreeSet<u64> = candidates.iter().map(|(root, _)| root.generation).collect();
    for block in in_root_tree() {
        let (generation, level) = (block.generation, block.level);
        let root = Pointer { logical: block.logical, generation, level };
        let is_copy = candidates.last().is_some_and(|(last, _)| *last == root);
        if highest[&generation] == level && !is_known.contains(&generation) && !is_copy {
            candidates.push((root, Origin::Device));
        }
    }
    candidates
}

struct Walk<'a> {
    blocks: &'a Blocks,
    missing: Missing<'a>,
}

impl<'a> Walk<'a> {
    fn new(blocks: &'a Blocks) -> Self {
        Self { blocks, missing: Missing::new(blocks) }
    }

    /// The state with this root; `None` if it is the root of no whole root tree.
    fn state(&mut self, root: Pointer, origin: Origin) -> Option<State> {
        let mut state = State {
            generation: root.generation,
            root: Logical(root.logical),
            level: root.level,
            time: None,
            origin,
            subvolumes: 0,
            missing: BTreeMap::new(),
        };
        let mut trees = BTreeMap::new();
        let lost = self.root_items(root, &mut HashSet::new(), &mut trees);
        // A leaf whose node was overwritten looks like a root, and has some of the first trees only.
        let is_whole = [EXTENT_TREE, DATA_RELOC_TREE].iter().all(|id| trees.contains_key(id));
        if lost == 0 && !is_whole && origin == Origin::Device {
            return None;
        }
        if lost > 0 {
            state.missing.insert(ROOT_TREE, lost);
        }
        for (tree, item) in &trees {
            if is_subvolume(*tree) {
                state.subvolumes += 1;
                let seconds = |time: &Timespec| (time.seconds(), time.nsec.get());
                let is_later = |time: &Timespec| seconds(time) < seconds(&item.ctime);
                if state.time.as_ref().is_none_or(is_later) && item.ctime.sec.get() != 0 {
                    state.time = Some(item.ctime);
                }
            }
            let root = Pointer {
                logical: item.bytenr.get(),
                generation: item.generation.get(),
                level: item.level,
            };
            let missing = u64::from(self.missing.at(root));
            if missing > 0 {
                state.missing.insert(*tree, missing);
            }
        }
        Some(state)
    }

    /// Collects the root items below a block of the root tree. Returns how many blocks are missing.
    fn root_items(
        &self,
        at: Pointer,
        seen: &mut HashSet<Pointer>,
        items: &mut BTreeMap<u64, RootItem>,
    ) -> u64 {
        if !seen.insert(at) {
            return 0;
        }
        let Some(bytes) = self.blocks.read(&at) else { return 1 };
        let node = Node::from_checked(&bytes);
        if !node.is_leaf() {
            let children = node.key_pointers().iter().map(|it| Pointer::in_node(it, at.level));
            return children.map(|child| self.root_items(child, seen, items)).sum();
        }
        for (key, data) in node.iter_items().filter(|(key, _)| is_kept_tree(key)) {
            let item = RootItem::parse(data).ok();
            // The blocks of a subvolume that is being deleted go one after the other.
            let is_kept = |item: &RootItem| item.refs.get() > 0;
            if let Some(item) = item.filter(is_kept) {
                items.insert(key.objectid, item);
            }
        }
        0
    }
}

/// Whether an item is the root of a tree that a commit keeps whole.
pub(crate) fn is_kept_tree(key: &larder_format::Key) -> bool {
    key.item_type == ItemType::ROOT_ITEM && ![TREE_LOG, TREE_RELOC].contains(&key.objectid)
}
