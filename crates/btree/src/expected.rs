//! What a pointer says about the block that it leads to.

use larder_format::{Key, Logical, Node};

/// What a pointer says about the block that it points to.
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
    /// What `parent` says about its child at `slot`.
    ///
    /// # Panics
    /// When there are not so many, or `parent` is a leaf.
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
