//! Blocks that get other addresses, and the pointers to them, for a thread that moves what several
//! trees share.
//!
//! # Invariants
//! - A block that moves keeps its owner, its keys and what it refers to. Only addresses change.
//! - A moved block that is shared says so: it is newer than the last snapshots of the trees that
//!   share it.
//! - No thread changes a tree meanwhile.

use std::sync::Arc;

use larder_format::node::{BACKREF_REV_MIXED, BACKREF_REV_SHIFT, HEADER_FLAG_RELOC, Header};
use larder_format::{Key, Logical};
use zerocopy::FromBytes;

use super::bytes::leaf::LeafMut;
use super::bytes::node::NodeMut;
use super::forest::Forest;
use super::state::block::LiveBlock;
use super::tree::live_tree::LiveTree;
use crate::block::Block;
use crate::root::TreeRoot;

/// What changes in a block whose children or extents have moved.
#[derive(Clone, Debug, Default)]
pub struct Repointing {
    /// Slots of a node, and where their children are now. These children are of the running
    /// transaction.
    pub pointers: Vec<(usize, Logical)>,
    /// Slots of a leaf, and their data, which has the same length as before.
    pub items: Vec<(usize, Vec<u8>)>,
    /// Whether several trees may have the block.
    pub is_shared: bool,
}

impl Repointing {
    fn apply(&self, bytes: &mut [u8], generation: u64) {
        let mut node = NodeMut::new(bytes);
        for (slot, logical) in &self.pointers {
            node.set_block(*slot, *logical, generation);
        }
        let mut leaf = LeafMut::new(bytes);
        for (slot, data) in &self.items {
            leaf.data(*slot).copy_from_slice(data);
        }
    }
}

impl Forest {
    /// Whether a block is one of the running transaction, so that it stays where it is.
    pub fn is_running(&self, block: &Block) -> bool {
        block.generation() == self.generation()
    }

    /// Puts a copy of a committed block at `logical`, in the running transaction.
    pub fn move_block(&self, block: &Block, logical: Logical, repointing: &Repointing) {
        let (mut moved, generation) = (block.clone(), self.generation());
        let bytes = moved.bytes_mut();
        let (header, _) = Header::mut_from_prefix(bytes).expect("a block has a header");
        header.bytenr = logical.0.into();
        let shared = if repointing.is_shared { HEADER_FLAG_RELOC } else { 0 };
        header.flags = (shared | BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into();
        header.generation = generation.into();
        let owner = header.owner.get();
        repointing.apply(bytes, generation);
        self.state.live.insert(LiveBlock::new(owner, moved));
        self.state.counters.copies.add(1);
    }

    /// Changes a block of the running transaction in place.
    ///
    /// # Panics
    /// If it is not in memory.
    pub fn repoint_block(&self, block: &Block, repointing: &Repointing) {
        let live = self.state.live.get(block.logical()).expect("it is of the running transaction");
        let mut guard = live.write(live.tree, Key::MIN, &self.state.locks);
        repointing.apply(guard.bytes_mut(), self.generation());
    }
}

impl LiveTree {
    /// Makes the tree begin where its root block has moved to. [`BlockSpace`](super::BlockSpace)
    /// does not hear of it.
    pub fn move_root(self: &Arc<Self>, root: TreeRoot) {
        *self.state.write_root() = root;
        self.state.fingers.clear();
    }
}
