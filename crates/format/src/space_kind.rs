//! The purpose of space.

use std::fmt;

use crate::block_group::BlockGroupFlags;
use crate::objectid::CHUNK_TREE;

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

    /// The kind of block groups of these types: data for mixed ones. `None` without a type.
    pub fn of_types(types: BlockGroupFlags) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| types.contains(kind.flag()))
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
        }
    }

    /// The type of new block groups for it. With mixed block groups, data and metadata share them.
    pub fn types(self, is_mixed: bool) -> BlockGroupFlags {
        match self {
            Self::Data | Self::Metadata if is_mixed => Self::Data.flag() | Self::Metadata.flag(),
            kind => kind.flag(),
        }
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
        f.write_str(self.name())
    }
}
