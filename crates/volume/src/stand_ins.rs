//! Tree blocks in the place of those that are lost.

use std::fmt;

use larder_format::Logical;

/// Tree blocks in the place of those that are lost: a volume asks for each block here first.
pub trait StandIns: fmt::Debug + Send + Sync {
    /// Fills `buf`, which is as long as a tree block, with the block of this address, generation and
    /// level. Returns whether there is one. The volume checks it like any other.
    fn read(&self, logical: Logical, generation: u64, level: u8, buf: &mut [u8]) -> bool;

    /// Whether items with this objectid may be missing from a tree, or out of date.
    fn doubts(&self, tree: u64, objectid: u64) -> bool;
}
