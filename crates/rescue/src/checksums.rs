//! Checksums of data, from the checksum tree as it was put together.

use std::ops::Range;

use larder_format::objectid::EXTENT_CSUM;
use larder_format::{ChecksumType, ItemType, Key};

use crate::attach::Attached;
use crate::blocks::Blocks;

/// The checksums of data.
pub(crate) struct Checksums<'a> {
    blocks: &'a Blocks,
    tree: Attached,
}

impl<'a> Checksums<'a> {
    /// Those in `tree`.
    pub(crate) fn of(blocks: &'a Blocks, tree: Attached) -> Self {
        Self { blocks, tree }
    }

    /// Calls `visit` with the address and checksum of each sector in a range of addresses that has
    /// one.
    pub(crate) fn for_each(&self, range: &Range<u64>, mut visit: impl FnMut(u64, &[u8])) {
        let sectorsize = self.blocks.evidence.sectorsize() as u64;
        let size = self.kind().size();
        let key = |at: u64| Key::new(EXTENT_CSUM, ItemType::EXTENT_CSUM, at);
        // An item covers less than a leaf's worth of sectors.
        let before = self.blocks.evidence.nodesize() as u64 * sectorsize;
        let keys = key(range.start.saturating_sub(before))..key(range.end);
        self.tree.for_each_item_in(self.blocks, &keys, &mut |key, data| {
            if key.item_type != ItemType::EXTENT_CSUM {
                return;
            }
            for (index, checksum) in data.chunks_exact(size).enumerate() {
                let at = key.offset.checked_add(index as u64 * sectorsize);
                if let Some(at) = at.filter(|at| range.contains(at)) {
                    visit(at, checksum);
                }
            }
        });
    }

    /// The checksum algorithm.
    pub(crate) fn kind(&self) -> ChecksumType {
        self.blocks.evidence.superblock.checksum_type()
    }
}
