//! Where tree blocks come from.

use larder_format::{Logical, tree_check};

use crate::expected::Expected;

/// Why a store could not deliver a block.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Something that holds tree blocks by their logical address.
///
/// A store with several copies of a block tries them until one is what the caller expects. What it
/// returns is verified once more by the cache.
pub trait BlockStore: Send + Sync {
    /// Length of every tree block in bytes.
    fn nodesize(&self) -> usize;

    /// Fills `buf`, which is [`nodesize`](Self::nodesize) long, with the block `expected`.
    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError>;

    /// What the items of a block are checked against on the way in.
    ///
    /// `None`, where items are made up and no file system stands behind them, checks structure only.
    fn tree_check(&self) -> Option<tree_check::Context> {
        None
    }

    /// Says that these bytes will be read soon. Never waits, never fails, and may do nothing.
    fn readahead(&self, logical: Logical, len_bytes: u64);
}
