//! Tree blocks in memory, for tests and for trees without a device.

use std::collections::BTreeMap;

use larder_format::{Header, Logical};
use parking_lot::RwLock;
use zerocopy::FromBytes;

use crate::{BlockStore, Expected, StoreError};

/// A [`BlockStore`] without a device. It checks nothing, since the cache does.
#[derive(Debug)]
pub struct MemoryStore {
    nodesize: usize,
    blocks: RwLock<BTreeMap<Logical, Box<[u8]>>>,
}

impl MemoryStore {
    /// An empty store for blocks of `nodesize` bytes.
    pub fn new(nodesize: usize) -> Self {
        Self { nodesize, blocks: RwLock::default() }
    }

    /// Stores a block under the address in its header.
    ///
    /// # Panics
    /// When the block has another size than the store's.
    pub fn write(&self, bytes: impl Into<Box<[u8]>>) {
        let bytes = bytes.into();
        assert_eq!(bytes.len(), self.nodesize);
        let (header, _) = Header::ref_from_prefix(&bytes).expect("a block holds a header");
        let logical = header.bytenr();
        self.blocks.write().insert(logical, bytes);
    }

    /// Changes the stored bytes of a block.
    ///
    /// # Panics
    /// When there is none at `logical`.
    pub fn damage(&self, logical: Logical, change: impl FnOnce(&mut [u8])) {
        change(self.blocks.write().get_mut(&logical).expect("a block to damage"));
    }

    /// Forgets a block; whether there was one.
    pub fn remove(&self, logical: Logical) -> bool {
        self.blocks.write().remove(&logical).is_some()
    }
}

impl BlockStore for MemoryStore {
    fn nodesize(&self) -> usize {
        self.nodesize
    }

    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError> {
        match self.blocks.read().get(&expected.logical) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err("there is no such block".into()),
        }
        Ok(())
    }

    fn readahead(&self, _logical: Logical, _len_bytes: u64) {}
}
