//! The tree blocks that were found.

use std::sync::Arc;

use larder_format::node::KeyPointer;
use larder_format::objectid::{ROOT_TREE, is_subvolume};
use larder_format::tree_check::{self, Context};
use larder_format::{DiskKey, Key, Logical, Node};
use larder_volume::{BlockExpectation, StateRoot, Volume};

use crate::evidence::Evidence;

/// A copy of a tree block on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) logical: u64,
    pub(crate) generation: u64,
    pub(crate) owner: u64,
    pub(crate) physical: u64,
    /// Index of the device.
    pub(crate) member: u32,
    pub(crate) level: u8,
    /// Its first key; in an empty leaf the greatest key.
    pub(crate) first: DiskKey,
    /// Its last key; in an empty leaf the smallest key.
    pub(crate) last: DiskKey,
    /// Whether it has an item that cannot be.
    pub(crate) has_bad_item: bool,
}

impl Block {
    /// The block in `node`, at `physical` of the device with this index.
    pub(crate) fn of(node: Node<'_>, context: &Context, member: u32, physical: u64) -> Self {
        let header = node.header();
        Self {
            logical: header.bytenr.get(),
            generation: header.generation.get(),
            owner: header.owner.get(),
            physical,
            member,
            level: header.level,
            first: node.first_key().unwrap_or(Key::MAX).into(),
            last: node.last_key().unwrap_or(Key::MIN).into(),
            has_bad_item: node.is_leaf() && tree_check::check_node(node, context).is_err(),
        }
    }

    /// What leads to it.
    pub(crate) fn pointer(&self) -> Pointer {
        Pointer { logical: self.logical, generation: self.generation, level: self.level }
    }
}

/// What leads to a tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pointer {
    pub(crate) logical: u64,
    pub(crate) generation: u64,
    pub(crate) level: u8,
}

impl Pointer {
    /// The pointer in a node of level `parent_level`, which is 1 at least.
    pub(crate) fn in_node(pointer: &KeyPointer, parent_level: u8) -> Self {
        Self {
            logical: pointer.blockptr.get(),
            generation: pointer.generation.get(),
            level: parent_level - 1,
        }
    }

    /// Whether the volume has the block that it leads to.
    pub(crate) fn is_in(&self, volume: &Volume) -> bool {
        let mut bytes = vec![0; volume.nodesize() as usize];
        volume.read_tree_block(Logical(self.logical), &self.expected(), &mut bytes).is_ok()
    }

    fn expected(&self) -> BlockExpectation {
        BlockExpectation {
            generation: Some(self.generation),
            level: Some(self.level),
            ..BlockExpectation::default()
        }
    }
}

/// All copies of all tree blocks that were found, in the order of addresses and generations.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) evidence: Arc<Evidence>,
    found: Vec<Block>,
}

impl Blocks {
    pub(crate) fn new(evidence: Arc<Evidence>, mut found: Vec<Block>) -> Self {
        found.sort_unstable_by_key(|it| (it.logical, it.generation, it.member, it.physical));
        Self { evidence, found }
    }

    /// The volume, if it can rebuild blocks of a missing device from parity.
    fn rebuilding(&self) -> Option<&Volume> {
        let lacks_device = |volume: &&Volume| volume.devices().iter().any(|it| it.is_missing());
        self.evidence.volume.as_ref().ok().filter(lacks_device)
    }

    /// All copies.
    pub(crate) fn all(&self) -> &[Block] {
        &self.found
    }

    /// Whether any block of a tree of files, or of the root tree, has an item that cannot be.
    pub(crate) fn has_bad_items(&self) -> bool {
        let is_read = |tree: u64| tree == ROOT_TREE || is_subvolume(tree);
        self.found.iter().any(|block| block.has_bad_item && is_read(block.owner))
    }

    /// The first copy of the block that `pointer` leads to, by its index.
    pub(crate) fn find(&self, pointer: &Pointer) -> Option<usize> {
        let key = (pointer.logical, pointer.generation);
        let at = self.found.partition_point(|it| (it.logical, it.generation) < key);
        let found = self.found.get(at)?;
        let is_it = (found.logical, found.generation, found.level)
            == (pointer.logical, pointer.generation, pointer.level);
        is_it.then_some(at)
    }

    /// Reads the block that `pointer` leads to. The node in it can be parsed, and has the address,
    /// the generation and the level of the pointer.
    pub(crate) fn read(&self, pointer: &Pointer) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.evidence.nodesize()];
        if let Some(first) = self.find(pointer) {
            let is_copy =
                |it: &&Block| (it.logical, it.generation) == (pointer.logical, pointer.generation);
            for copy in self.found[first..].iter().take_while(is_copy) {
                let device = &self.evidence.members[copy.member as usize].device;
                if device.read_at(&mut bytes, copy.physical).is_ok() && self.is(&bytes, pointer) {
                    return Some(bytes);
                }
            }
            return None;
        }
        self.rebuild(pointer, &mut bytes).then_some(bytes)
    }

    /// Whether the block that `pointer` leads to is there.
    pub(crate) fn has(&self, pointer: &Pointer) -> bool {
        self.find(pointer).is_some()
            || self.rebuild(pointer, &mut vec![0; self.evidence.nodesize()])
    }

    fn is(&self, bytes: &[u8], pointer: &Pointer) -> bool {
        self.evidence.block(bytes).is_some_and(|node| {
            let header = node.header();
            let found = (header.bytenr.get(), header.generation.get(), header.level);
            found == (pointer.logical, pointer.generation, pointer.level)
        })
    }

    /// Rebuilds a block of a missing device.
    fn rebuild(&self, pointer: &Pointer, bytes: &mut [u8]) -> bool {
        let Some(volume) = self.rebuilding() else { return false };
        let logical = Logical(pointer.logical);
        volume.chunk_at(logical).is_some_and(|chunk| chunk.has_parity())
            && volume.read_tree_block(logical, &pointer.expected(), bytes).is_ok()
    }
}

impl From<Pointer> for StateRoot {
    fn from(root: Pointer) -> Self {
        let Pointer { logical, generation, level } = root;
        Self { root: Logical(logical), level, generation }
    }
}
