//! The comparison of chunks with the trees that name them, when a file system is opened for
//! writing.
//!
//! # Invariants
//! - Each chunk has its device extents, each device extent its chunk, and none overlaps another.
//! - No extent and no block group lies outside of all chunks.
//!
//! The kernel refuses to mount a file system that breaks one of these: an allocation could return
//! space that is in use.

use std::sync::Arc;

use larder_btree::{BlockCache, Readahead, Tree, TreeRoot};
use larder_format::item::DevExtent;
use larder_format::{FormatError, ItemType, Key, read_exact_item};
use larder_volume::{Chunk, ChunkMap};

use super::system_trees::SystemTrees;
use crate::error::{Error, Result};

/// Compares the device tree, the extent tree and the block group tree, as they were committed, with
/// the chunks.
pub(super) fn check(cache: &Arc<BlockCache>, trees: &SystemTrees, chunks: &ChunkMap) -> Result<()> {
    let committed = |root: TreeRoot| Tree::new(cache.clone(), root);
    check_device_extents(&committed(trees.dev.root()), chunks)?;
    check_gaps(&committed(trees.extent.root()), chunks)?;
    if trees.block_group.id() != trees.extent.id() {
        check_gaps(&committed(trees.block_group.root()), chunks)?;
    }
    Ok(())
}

fn check_device_extents(tree: &Tree, chunks: &ChunkMap) -> Result<()> {
    let mut found = 0;
    let mut last = (0, 0);
    let mut items = tree.range(.., Readahead::Forward);
    while let Some((key, data)) = items.next_item()? {
        if key.item_type != ItemType::DEV_EXTENT {
            continue;
        }
        let wrong = |problem| Error::item(tree.root().tree, key, problem);
        let item: &DevExtent = read_exact_item(data).map_err(wrong)?;
        let chunk = chunks.get(item.chunk_offset()).filter(|chunk| has_extent(chunk, key, item));
        if chunk.is_none() {
            return Err(wrong(FormatError::invalid("DevExtent", "no chunk has just this extent")));
        }
        if (key.objectid, key.offset) < last {
            let problem = "it begins inside the extent before it";
            return Err(wrong(FormatError::invalid("DevExtent", problem)));
        }
        last = (key.objectid, key.offset + item.length.get());
        found += 1;
    }
    // Each was found in a chunk, and no two are the same.
    let stripes: usize = chunks.iter().map(|chunk| chunk.stripes().len()).sum();
    if found == stripes {
        return Ok(());
    }
    let first = Key::new(0, ItemType::DEV_EXTENT, 0);
    let problem = format!("{found} extents for {stripes} stripes of chunks");
    Err(Error::item(tree.root().tree, first, FormatError::invalid("DevExtent", problem)))
}

/// Whether a device extent belongs to the chunk that it names.
fn has_extent(chunk: &Chunk, key: Key, item: &DevExtent) -> bool {
    let is_here = chunk
        .stripes()
        .iter()
        .any(|stripe| (stripe.devid, stripe.physical.0) == (key.objectid, key.offset));
    chunk.logical() == item.chunk_offset()
        && chunk.bytes_per_stripe() == item.length.get()
        && is_here
}

/// Fails if something lies between chunks.
fn check_gaps(tree: &Tree, chunks: &ChunkMap) -> Result<()> {
    let starts = chunks.iter().map(|chunk| chunk.logical().0).chain([u64::MAX]);
    let ends = std::iter::once(0).chain(chunks.iter().map(|chunk| chunk.end().0));
    for (from, to) in ends.zip(starts).filter(|(from, to)| from < to) {
        let keys = Key::new(from, ItemType(0), 0)..Key::new(to, ItemType(0), 0);
        if let Some((key, _)) = tree.range(keys, Readahead::None).next_item()? {
            let problem = FormatError::invalid("address", "it lies in no chunk");
            return Err(Error::item(tree.root().tree, key, problem));
        }
    }
    Ok(())
}
