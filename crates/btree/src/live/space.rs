//! The interface between changing trees and the manager of space and references.

use larder_format::{Header, Key, Logical};

use crate::block::Block;
use crate::root::TreeRoot;

/// Why the manager of space has no block.
pub type SpaceError = Box<dyn std::error::Error + Send + Sync>;

/// A request for a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// The tree that asks for it.
    pub tree: u64,
    /// The level that it will have.
    pub level: u8,
    /// Its first key; [`Key::MIN`] for the leaf of an empty tree.
    pub first_key: Key,
    /// A block that readers will read together with it.
    pub near: Option<Logical>,
}

/// A copy of a block of an earlier transaction.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// The tree that now has the copy.
    pub tree: u64,
    /// The header of the old block.
    pub old: &'a Header,
    /// The copy. So far only its header differs from the old block.
    pub new: &'a Block,
    /// Whether other trees may have the old block too: its generation is not above the tree's last
    /// snapshot. If not, this tree's reference was the only one.
    pub old_may_be_shared: bool,
    /// Whether the tree gave up the old block for the copy. If not, this is a new snapshot, and
    /// both blocks stay.
    pub old_is_replaced: bool,
}

/// Space and references, as a transaction sees them.
///
/// Trees call these functions while they hold locks of blocks, so that the functions answer from
/// memory. They never look into a tree that changes, with one exception: [`copied`](Self::copied)
/// may look up in the extent tree whether a block is shared.
pub trait BlockSpace: Send + Sync {
    /// A free address. The caller gives the block one reference, from the tree.
    fn allocate(&self, request: &BlockRequest) -> Result<Logical, SpaceError>;

    /// A tree copied a block: now two blocks refer to the children or extents of the old one,
    /// unless the old one goes away. After an error the tree does not use the copy, and its
    /// address comes back as a freed block.
    fn copied(&self, copied: &Copied<'_>) -> Result<(), SpaceError>;

    /// A tree lost its reference to a block that was born in the running transaction. The block
    /// refers to nothing any more.
    fn freed(&self, tree: u64, block: &Block);

    /// A tree has another root block.
    fn root_changed(&self, root: TreeRoot) {
        let _ = root;
    }
}
