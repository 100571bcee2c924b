//! What changing trees ask of whoever manages space and references.

use larder_format::{Header, Key, Logical};

use crate::block::Block;
use crate::root::TreeRoot;

/// Why a block could not be had.
pub type SpaceError = Box<dyn std::error::Error + Send + Sync>;

/// A wish for a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// The tree that it is for.
    pub tree: u64,
    /// The level that it will have.
    pub level: u8,
    /// Its first key; [`Key::MIN`] for the leaf of an empty tree.
    pub first_key: Key,
    /// A block that will be read together with it.
    pub near: Option<Logical>,
}

/// A block of an earlier transaction that was copied.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// The tree that now has the copy.
    pub tree: u64,
    /// The header of what was copied.
    pub old: &'a Header,
    /// The copy, which differs from what was copied only by its header so far.
    pub new: &'a Block,
    /// Whether other trees may have the old block too: its generation is not above the tree's last snapshot.
    /// If not, this tree's reference was the only one.
    pub old_may_be_shared: bool,
    /// Whether the tree gave the old block up for the copy. Otherwise (a new snapshot) both stay.
    pub old_is_replaced: bool,
}

/// Space and references, as a transaction sees them.
///
/// All of these are called while blocks of the tree are locked: they answer from memory. They never
/// look into a tree that changes, except that [`copied`](Self::copied) may look up in the extent
/// tree whether a block that may be shared is.
pub trait BlockSpace: Send + Sync {
    /// A free address. The caller gives the block one reference, from the tree.
    fn allocate(&self, request: &BlockRequest) -> Result<Logical, SpaceError>;

    /// A block was copied: what it referred to is now referred to from two blocks, unless the old one
    /// goes away. After an error the copy is not used, and its address comes back as a freed block.
    fn copied(&self, copied: &Copied<'_>) -> Result<(), SpaceError>;

    /// A tree lost its reference to a block that was born in the running transaction. The block
    /// refers to nothing any more.
    fn freed(&self, tree: u64, block: &Block);

    /// A tree has another root block.
    fn root_changed(&self, root: TreeRoot) {
        let _ = root;
    }
}
