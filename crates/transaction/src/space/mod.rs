//! Space.
use std::fmt;

/// What space is for: the three types of block groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// File data.
    Data,
    /// Tree blocks of all trees but the chunk tree.
    Metadata,
    /// Tree blocks of the chunk tree.
    System,
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
