//! From live blocks to blocks on a device.

use std::fmt;
use std::sync::{Arc, OnceLock};

use larder_format::checksum::CHECKSUM_SIZE;
use larder_format::node::{BACKREF_REV_SHIFT, HEADER_FLAG_WRITTEN};
use larder_format::{ChecksumType, Header, Key, Logical};
use zerocopy::FromBytes;

use super::bytes::{leaf, node};
use super::state::block::LiveBlock;
use super::state::forest::ForestState;
use crate::block::{Block, verify};
use crate::error::TreeError;
use crate::expected::Expected;

/// Blocks that are to be written, in order of address.
///
/// Each is sealed, which gives it its final content, and written by the caller. Once all are on
/// their devices, [`finish`](Self::finish) lets the cache have them.
pub struct WriteSet {
    forest: Arc<ForestState>,
    /// The generation that ends with this set.
    ended: Option<u64>,
    /// Found when they are first asked for, which is after others may go on.
    blocks: OnceLock<Vec<LiveBlock>>,
}

impl WriteSet {
    /// The blocks of all generations up to `ended`, of which there will be no more.
    pub(crate) fn of_generation(forest: Arc<ForestState>, ended: u64) -> Self {
        Self { forest, ended: Some(ended), blocks: OnceLock::new() }
    }

    /// The blocks that unlisted trees have now and had not when they were last asked for.
    pub(crate) fn of_unlisted(forest: Arc<ForestState>) -> Self {
        let blocks = forest.live.take_noted().into();
        Self { forest, ended: None, blocks }
    }

    fn blocks(&self) -> &[LiveBlock] {
        self.blocks.get_or_init(|| {
            let ended = self.ended.unwrap_or(0);
            self.forest.live.collect(|block| block.generation <= ended)
        })
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.blocks().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks().is_empty()
    }

    /// The addresses, ascending.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = Logical> {
        self.blocks().iter().map(|block| block.logical)
    }

    /// The final content of the block at `index`, with its checksum. Sealing it again gives the same.
    ///
    /// The block is checked as it will be when it is read: what fails that must not be written.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn seal(&self, index: usize, checksum: ChecksumType) -> Result<Block, TreeError> {
        let live = &self.blocks()[index];
        // No other lock of the tree is held here, so that any place in the order will do.
        let mut guard = live.write(live.tree, Key::MIN, &self.forest.locks);
        let bytes = guard.bytes_mut();
        if live.level == 0 {
            leaf::clear_free_space(bytes);
        } else {
            node::clear_free_space(bytes);
        }
        let (header, _) = Header::mut_from_prefix(bytes).expect("a block holds a header");
        let revision = header.backref_rev() << BACKREF_REV_SHIFT;
        header.flags = (header.flags() | HEADER_FLAG_WRITTEN | revision).into();
        header.csum = [0; CHECKSUM_SIZE];
        let computed = checksum.compute_block(bytes);
        bytes[..computed.as_bytes().len()].copy_from_slice(computed.as_bytes());
        self.check(live, &guard)?;
        Ok(guard.clone())
    }

    fn check(&self, live: &LiveBlock, block: &Block) -> Result<(), TreeError> {
        let expected = Expected {
            tree: live.tree,
            logical: live.logical,
            generation: live.generation,
            level: live.level,
            first_key: None,
        };
        let context = self.forest.cache.store().tree_check();
        verify(&expected, block.bytes(), context.as_ref())
            .map_err(|problem| TreeError::new(&expected, problem))
    }

    /// Called when all blocks are where the store finds them: the cache takes them over.
    pub fn finish(self) {
        for live in self.blocks().iter().filter(|live| self.forest.live.has(live)) {
            let block = live.read(live.tree, Key::MIN, &self.forest.locks).clone();
            self.forest.cache.insert(block);
        }
        if let Some(generation) = self.ended {
            self.forest.set_durable(generation);
        }
        for live in self.blocks() {
            self.forest.live.remove_written(live);
        }
    }
}

impl fmt::Debug for WriteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteSet")
            .field("blocks", &self.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
