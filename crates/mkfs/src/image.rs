//! The file system while it is made: its space, the record of its allocations, and the writer.

use std::ops::Range;

use larder_format::{Key, Logical, SpaceKind, Uuid};
use larder_volume::Volume;

use crate::MkfsError;
use crate::settings::Settings;
use crate::space::Space;
use crate::tree::{BlockSink, OpenNode};
use crate::writer::{Write, Writer};

/// Consecutive tree blocks are written together, up to this many bytes.
const BATCH_BYTES: usize = 1024 * 1024;

/// A tree block, for the extent tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRecord {
    pub(crate) logical: Logical,
    pub(crate) owner: u64,
    pub(crate) level: u8,
    /// Its first key; [`Key::MIN`] for an empty leaf.
    pub(crate) first_key: Key,
}

/// A data extent and the one file extent that refers to it, for the extent tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentRecord {
    pub(crate) logical: Logical,
    pub(crate) len_bytes: u32,
    pub(crate) root: u64,
    pub(crate) inode: u64,
    pub(crate) file_offset: u64,
}

/// The file system while it is made. Both lists of records ascend by address.
pub(crate) struct Image<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) space: Space,
    pub(crate) blocks: Vec<BlockRecord>,
    pub(crate) extents: Vec<ExtentRecord>,
    /// Whether any extent is compressed.
    pub(crate) compression_used: bool,
    volume: &'a Volume,
    /// How many of the space's groups the volume has.
    known_groups: usize,
    chunk_tree_uuid: Uuid,
    writer: Writer<'a>,
    /// Consecutive tree blocks, not yet sent.
    batch: Vec<u8>,
    batch_start: Logical,
}

impl<'a> Image<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        space: Space,
        volume: &'a Volume,
        writer: Writer<'a>,
    ) -> Self {
        Self {
            settings,
            space,
            blocks: Vec::new(),
            extents: Vec::new(),
            compression_used: false,
            volume,
            known_groups: 0,
            chunk_tree_uuid: settings.derived_uuid("chunk tree"),
            writer,
            batch: Vec::new(),
            batch_start: Logical(0),
        }
    }

    pub(crate) fn chunk_tree_uuid(&self) -> Uuid {
        self.chunk_tree_uuid
    }

    /// Replaces the space by one in which more is allocated.
    pub(crate) fn set_space(&mut self, space: Space) {
        self.space = space;
        self.publish_groups();
    }

    /// Allocates at most `wanted` and at least `least` bytes for data.
    pub(crate) fn allocate_data(
        &mut self,
        wanted: u64,
        least: u64,
    ) -> Result<Range<u64>, MkfsError> {
        let usage = self.settings.data_use();
        let range = self.space.allocate(usage, wanted, least, self.settings)?;
        self.publish_groups();
        Ok(range)
    }

    /// Adds new chunks to the volume.
    fn publish_groups(&mut self) {
        for group in &self.space.groups()[self.known_groups..] {
            let chunk = group.chunk.as_ref().clone();
            self.volume.add_chunk(chunk).expect("chunks that are made here do not overlap");
        }
        self.known_groups = self.space.groups().len();
    }

    /// Makes block groups as small as what they hold, and moves them together.
    pub(crate) fn settle(&mut self) -> Result<(), MkfsError> {
        self.send_batch()?;
        let layouts = self.space.settle(self.settings).into_iter();
        layouts.map(Write::Layout).try_for_each(|layout| self.writer.send(layout))
    }

    /// Queues data.
    pub(crate) fn write_data(
        &mut self,
        buffer: Vec<u8>,
        parts: Vec<(Logical, Range<usize>)>,
    ) -> Result<(), MkfsError> {
        self.writer.send(Write::Data { buffer, parts })
    }

    /// Queues a tree block at its address.
    pub(crate) fn write_block(
        &mut self,
        logical: Logical,
        block: &mut OpenNode,
    ) -> Result<(), MkfsError> {
        let follows = self.batch_start.0 + self.batch.len() as u64 == logical.0;
        if !follows || self.batch.len() + self.settings.node_size > BATCH_BYTES {
            self.send_batch()?;
            self.batch_start = logical;
        }
        let sealed = block.seal(logical, self.settings.fsid, self.chunk_tree_uuid);
        self.batch.extend_from_slice(sealed);
        Ok(())
    }

    fn send_batch(&mut self) -> Result<(), MkfsError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_BYTES));
        self.writer.send(Write::Blocks { logical: self.batch_start, bytes })
    }

    /// Returns once everything is written.
    pub(crate) fn finish_writing(&mut self) -> Result<(), MkfsError> {
        self.send_batch()?;
        self.writer.finish()
    }
}

/// Trees before the last ones get the next address for each block.
impl BlockSink for Image<'_> {
    fn store(&mut self, block: &mut OpenNode) -> Result<Logical, MkfsError> {
        let logical = self.space.allocate_block(SpaceKind::Metadata, self.settings)?;
        self.publish_groups();
        self.blocks.push(block.record(logical));
        self.write_block(logical, block)?;
        Ok(logical)
    }
}
