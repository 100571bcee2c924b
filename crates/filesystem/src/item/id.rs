//! The identity of an inode.

/// The identity of an inode: subvolume and number. Inodes are locked in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InodeId {
    pub(crate) subvolume: u64,
    pub(crate) number: u64,
}
