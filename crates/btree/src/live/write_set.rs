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

/// The blocks that a commit, or a log, has to write, in order of address.
///
/// The caller seals each block, which gives it its final content, and writes it. Once all blocks
/// are on their devices, [`finish`](Self::finish) hands them to the cache.
pub struct WriteSet {
    forest: Arc<ForestState>,
    /// The generation that ends with this set.
    ended: Option<u64>,
    /// Filled at the first question, when other threads may go on already.
    blocks: OnceLock<Vec<LiveBlock>>,
}

impl WriteSet {
    /// The blocks of all generations up to `ended`, which gets no more blocks.
    pub(crate) fn of_generation(forest: Arc<ForestState>, ended: u64) -> Self {
        Self { forest, ended: Some(ended), blocks: OnceLock::new() }
    }

    /// The blocks of unlisted trees that are new since the last such set.
    pub(crate) fn of_unlisted(forest: Arc<ForestState>) -> Self {
        let blocks = forest.live.take_unlisted().into();
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

    /// The final content of the block at `index`, with its checksum. Sealing it again gives the
    /// same.
    ///
    /// The block passes the checks that it will pass when a reader reads it. The caller must not
    /// write a block that fails them.
    ///
    /// # Panics
    /// When there are fewer blocks.
    pub fn seal(&self, index: usize, checksum: ChecksumType) -> Result<Block, TreeError> {
        let live = &self.blocks()[index];
        // This thread holds no other lock of the tree, so that any place in the order will do.
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

    /// Hands all blocks to the cache. The caller has written them where the store finds them.
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
