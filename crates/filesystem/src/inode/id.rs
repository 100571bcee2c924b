//! Which inode.

/// Which inode: subvolume and number, the order in which inodes are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InodeId {
    pub(crate) subvolume: u64,
    pub(crate) number: u64,
}
