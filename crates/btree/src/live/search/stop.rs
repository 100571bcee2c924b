//! Why a descent ends before it reaches its leaf.

use larder_format::Key;

use crate::block::Block;
use crate::expected::Expected;
use crate::live::error::ChangeError;

/// Why a descent ended above the leaf, or without what it needs.
pub(crate) enum Stop {
    /// It needs write locks up to this level.
    Restart { level: u8 },
    /// The leaf will be split: it needs write locks up to this level, and room in the nodes on its
    /// way.
    RestartToSplit { level: u8 },
    /// It needs a block that is not in memory.
    Read(MissingBlock),
    /// It cannot go on.
    Failed(ChangeError),
}

impl<E: Into<ChangeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A block that is not in memory, and where it hangs.
pub(crate) struct MissingBlock {
    pub(crate) expected: Expected,
    pub(crate) upper: Option<Key>,
    /// The parent as it was and the slot there, unless the block is a root.
    pub(crate) parent: Option<(Block, usize)>,
}
