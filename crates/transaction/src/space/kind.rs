//! The purpose of space.

use std::fmt;

use larder_format::BlockGroupFlags;
use larder_format::objectid::CHUNK_TREE;

/// The purpose of space: the three types of block groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// File data.
    Data,
    /// Tree blocks of all trees except the chunk tree.
    Metadata,
    /// Tree blocks of the chunk tree.
    System,
}

impl SpaceKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Data, Self::Metadata, Self::System];

    /// The kind for blocks of a tree.
    pub fn of_tree(tree: u64) -> Self {
        if tree == CHUNK_TREE { Self::System } else { Self::Metadata }
    }

    /// The type bit of block groups for it.
    pub fn flag(self) -> BlockGroupFlags {
        match self {
            Self::Data => BlockGroupFlags::DATA,
            Self::Metadata => BlockGroupFlags::METADATA,
            Self::System => BlockGroupFlags::SYSTEM,
        }
    }
}

impl fmt::Display for SpaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
        })
    }
}
