//! An item that keeps its leaf alive.

use std::ops::Deref;

use larder_format::Key;

use crate::Block;

/// An item of a leaf, for as long as the caller keeps it. Dereferences to the item's data.
#[derive(Clone, Debug)]
pub struct ItemRef {
    leaf: Block,
    slot: usize,
}

impl ItemRef {
    /// The item at `slot`, which exists.
    pub(crate) fn new(leaf: Block, slot: usize) -> Self {
        debug_assert!(slot < leaf.node().nritems());
        Self { leaf, slot }
    }

    /// The item's key.
    pub fn key(&self) -> Key {
        self.leaf.node().key(self.slot)
    }

    /// The item's data.
    pub fn data(&self) -> &[u8] {
        self.leaf.node().item_data(self.slot)
    }

    /// The leaf that holds it.
    pub fn leaf(&self) -> &Block {
        &self.leaf
    }

    /// The item's place in its leaf.
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl Deref for ItemRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.data()
    }
}
