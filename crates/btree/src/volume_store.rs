//! A volume as a store of tree blocks.

use larder_format::objectid::{TREE_LOG, TREE_RELOC};
use larder_format::{Logical, tree_check};
use larder_volume::{BlockExpectation, Volume};

use crate::{BlockStore, Expected, StoreError};

impl BlockStore for Volume {
    fn nodesize(&self) -> usize {
        Volume::nodesize(self) as usize
    }

    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError> {
        let owner = (!matches!(expected.tree, TREE_LOG | TREE_RELOC)).then_some(expected.tree);
        let expectation = BlockExpectation {
            generation: Some(expected.generation),
            level: Some(expected.level),
            owner,
            first_key: expected.first_key,
        };
        self.read_tree_block(expected.logical, &expectation, buf)?;
        Ok(())
    }

    fn tree_check(&self) -> Option<tree_check::Context> {
        Some(tree_check::Context::new(&self.superblock()))
    }

    fn readahead(&self, logical: Logical, len_bytes: u64) {
        Volume::readahead(self, logical, len_bytes);
    }
}
