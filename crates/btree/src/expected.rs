//! What a pointer says about the block that it leads to.

use larder_format::{Key, Logical, Node};

/// The block that a pointer leads to, as the pointer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The tree through which the block was reached.
    pub tree: u64,
    /// Where the block is.
    pub logical: Logical,
    /// The transaction that wrote it.
    pub generation: u64,
    /// Distance from the leaves.
    pub level: u8,
    /// Its first key; `None` for a root, which may be empty.
    pub first_key: Option<Key>,
}

impl Expected {
    /// The child at `slot` as `parent` describes it.
    ///
    /// # Panics
    /// When `parent` has no such slot, or is a leaf.
    pub fn child(tree: u64, parent: Node<'_>, slot: usize) -> Self {
        let pointer = &parent.key_pointers()[slot];
        Self {
            tree,
            logical: pointer.blockptr(),
            generation: pointer.generation.get(),
            level: parent.level() - 1,
            first_key: Some(pointer.key.get()),
        }
    }
}
