//! The checksum tree, which grows with the data: addresses ascend as it is written.

use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, Logical, objectid};

use crate::MkfsError;
use crate::settings::Settings;
use crate::tree::{BlockSink, TreeBuilder, TreeRoot};

/// The most sectors that a checksum item covers, whatever the size of a leaf.
const MAX_SECTORS: usize = 4096;

#[derive(Debug)]
pub(crate) struct ChecksumTree {
    tree: TreeBuilder,
    checksum_size: usize,
    sector_size: u64,
    max_item_size: usize,
    /// Checksums of consecutive sectors from `start` on that are not in an item yet.
    start: Logical,
    pending: Vec<u8>,
}

impl ChecksumTree {
    pub(crate) fn new(settings: &Settings) -> Self {
        let checksum_size = settings.checksum.size();
        // The kernel keeps room for two item headers and one checksum.
        let room = leaf_data_size(settings.node_size) - 2 * ITEM_HEADER_SIZE;
        let sectors = (room / checksum_size - 1).min(MAX_SECTORS);
        Self {
            tree: TreeBuilder::new(objectid::CSUM_TREE, settings.node_size),
            checksum_size,
            sector_size: settings.sector_size as u64,
            max_item_size: sectors * checksum_size,
            start: Logical(0),
            pending: Vec::new(),
        }
    }

    /// Adds the checksums of the sectors from `logical` on.
    pub(crate) fn push(
        &mut self,
        logical: Logical,
        mut sums: &[u8],
        sink: &mut dyn BlockSink,
    ) -> Result<(), MkfsError> {
        if self.end() != logical {
            self.end_item(sink)?;
            self.start = logical;
        }
        while !sums.is_empty() {
            let room = self.max_item_size - self.pending.len();
            let (now, later) = sums.split_at(sums.len().min(room));
            self.pending.extend_from_slice(now);
            sums = later;
            if self.pending.len() == self.max_item_size {
                self.end_item(sink)?;
            }
        }
        Ok(())
    }

    fn end(&self) -> Logical {
        let sectors = (self.pending.len() / self.checksum_size) as u64;
        Logical(self.start.0 + sectors * self.sector_size)
    }

    fn end_item(&mut self, sink: &mut dyn BlockSink) -> Result<(), MkfsError> {
        if !self.pending.is_empty() {
            let key = Key::new(objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM, self.start.0);
            self.tree.push(key, &self.pending, sink)?;
            self.start = self.end();
            self.pending.clear();
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, sink: &mut dyn BlockSink) -> Result<TreeRoot, MkfsError> {
        self.end_item(sink)?;
        self.tree.finish(sink)
    }
}
