//! Trees built from the bottom up, in one pass, from items that arrive in the order of their keys.

mod builder;
mod node;

use larder_format::{Key, Logical};

use crate::MkfsError;

pub(crate) use builder::TreeBuilder;
pub(crate) use node::OpenNode;

/// The destination of finished tree blocks.
pub(crate) trait BlockSink {
    /// Assigns an address to the block, and stores it.
    fn store(&mut self, block: &mut OpenNode) -> Result<Logical, MkfsError>;
}

/// A finished tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeRoot {
    pub(crate) bytenr: Logical,
    pub(crate) level: u8,
    /// Number of tree blocks.
    pub(crate) blocks: u64,
}

/// Takes items in the order of their keys.
pub(crate) type Emit<'a> = dyn FnMut(Key, &[u8]) -> Result<(), MkfsError> + 'a;
