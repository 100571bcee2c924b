//! The origin of a reference to an extent: a back reference without its count.

use larder_format::item::BackRef;

/// The origin of a reference to an extent. Several from one referrer are one back reference with a
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Referrer {
    /// A tree refers to a tree block of its own: a *TREE_BLOCK_REF*.
    Tree {
        /// Id of the tree.
        root: u64,
    },
    /// A block refers to its child: a *SHARED_BLOCK_REF*.
    Block {
        /// Logical address of the parent.
        parent: u64,
    },
    /// A file of a tree refers to data: an *EXTENT_DATA_REF*.
    File {
        /// Id of the tree.
        root: u64,
        /// Number of the inode.
        inode: u64,
        /// File offset minus offset in the extent (wrapping).
        offset: u64,
    },
    /// A leaf refers to data, whichever trees share it: a *SHARED_DATA_REF*.
    Leaf {
        /// Logical address of the leaf.
        parent: u64,
    },
}

impl Referrer {
    /// The back reference that stands for `count` references.
    pub fn back_ref(self, count: u32) -> BackRef {
        match self {
            Self::Tree { root } => BackRef::TreeBlock { root },
            Self::Block { parent } => BackRef::SharedBlock { parent },
            Self::File { root, inode, offset } => {
                BackRef::Data { root, objectid: inode, offset, count }
            }
            Self::Leaf { parent } => BackRef::SharedData { parent, count },
        }
    }

    /// The referrer of a back reference; none for an owner reference, which counts nothing.
    pub fn of(back_ref: &BackRef) -> Option<Self> {
        Some(match *back_ref {
            BackRef::TreeBlock { root } => Self::Tree { root },
            BackRef::SharedBlock { parent } => Self::Block { parent },
            BackRef::Data { root, objectid, offset, .. } => {
                Self::File { root, inode: objectid, offset }
            }
            BackRef::SharedData { parent, .. } => Self::Leaf { parent },
            BackRef::Owner { .. } => return None,
        })
    }

    /// Whether it is a file in this subvolume.
    pub fn is_file_in(self, subvolume: u64) -> bool {
        matches!(self, Self::File { root, .. } if root == subvolume)
    }

    /// Whether it refers to data, not to a tree block.
    pub fn is_of_data(self) -> bool {
        matches!(self, Self::File { .. } | Self::Leaf { .. })
    }
}
