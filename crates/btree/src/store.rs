//! Where tree blocks come from.

use larder_format::{Logical, tree_check};

use crate::expected::Expected;

/// Why a store has no sound copy of a block.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Something that holds tree blocks by their logical address.
///
/// A store with several copies of a block tries them until one is as expected. The cache verifies
/// the block once more.
pub trait BlockStore: Send + Sync {
    /// Length of every tree block in bytes.
    fn nodesize(&self) -> usize;

    /// Fills `buf`, which is [`nodesize`](Self::nodesize) long, with the block `expected`.
    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError>;

    /// The limits that the cache checks a block's items against when it reads the block.
    ///
    /// `None` checks structure only: for stores of invented items, without a file system.
    fn tree_check(&self) -> Option<tree_check::Context> {
        None
    }

    /// Announces that a thread will read these bytes soon. Never waits, never fails, and may do
    /// nothing.
    fn readahead(&self, logical: Logical, len_bytes: u64);
}
