//! Tree blocks from a volume.

use std::sync::Arc;

use larder_btree::{BlockStore, Expected, StoreError};
use larder_format::objectid::{TREE_LOG, TREE_RELOC};
use larder_format::{Logical, tree_check};
use larder_volume::{BlockExpectation, Volume};

/// A volume as the place where tree blocks come from: verified, healed, read ahead.
pub(crate) struct VolumeStore(pub(crate) Arc<Volume>);

impl BlockStore for VolumeStore {
    fn nodesize(&self) -> usize {
        self.0.nodesize() as usize
    }

    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError> {
        let has_one_owner = !matches!(expected.tree, TREE_LOG | TREE_RELOC);
        let expectation = BlockExpectation {
            generation: Some(expected.generation),
            level: Some(expected.level),
            owner: has_one_owner.then_some(expected.tree),
            first_key: expected.first_key,
        };
        self.0.read_tree_block(expected.logical, &expectation, buf)?;
        Ok(())
    }

    fn tree_check(&self) -> Option<tree_check::Context> {
        Some(tree_check::Context::new(self.0.superblock()))
    }

    fn readahead(&self, logical: Logical, len_bytes: u64) {
        self.0.readahead(logical, len_bytes);
    }
}
