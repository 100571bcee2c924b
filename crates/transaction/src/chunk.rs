//! A chunk in the trees: CHUNK_ITEM, DEV_EXTENTs and the device items' counts, and for system
//! chunks the superblock's array.

use larder_format::item::DevItem;
use larder_format::objectid::DEV_ITEMS;
use larder_format::superblock::SYS_CHUNK_ARRAY_SIZE;
use larder_format::{ItemType, Key, Uuid, read_exact_item};
use larder_volume::chunk::system_chunk_array;
use larder_volume::layout::{DeviceSpace, Devices};
use larder_volume::{Chunk, ChunkMap};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::items::Items;

/// The trees that describe chunks.
pub struct ChunkTrees<'a> {
    /// The chunk tree.
    pub chunk_tree: &'a mut dyn Items,
    /// The device tree.
    pub dev_tree: &'a mut dyn Items,
    /// UUID of the chunk tree.
    pub chunk_tree_uuid: Uuid,
    /// Bytes in a sector.
    pub sectorsize: u32,
}

/// Inserts a chunk; `devices` have its space taken.
pub fn insert_chunk(trees: &mut ChunkTrees<'_>, devices: &Devices, chunk: &Chunk) -> Result<()> {
    trees.chunk_tree.insert(chunk.key(), &chunk.to_item(trees.sectorsize))?;
    for (key, extent) in chunk.device_extents(trees.chunk_tree_uuid) {
        trees.dev_tree.insert(key, extent.as_bytes())?;
    }
    update_device_items(trees, devices, chunk)
}

/// Removes a chunk; `devices` have its space retired.
pub fn remove_chunk(trees: &mut ChunkTrees<'_>, devices: &Devices, chunk: &Chunk) -> Result<()> {
    trees.chunk_tree.remove(chunk.key())?;
    for (key, _) in chunk.device_extents(trees.chunk_tree_uuid) {
        trees.dev_tree.remove(key)?;
    }
    update_device_items(trees, devices, chunk)
}

/// Puts a chunk in the place of the one with its addresses; `devices` have the space of both as it
/// is from now on.
pub fn replace_chunk(
    trees: &mut ChunkTrees<'_>,
    devices: &Devices,
    old: &Chunk,
    new: &Chunk,
) -> Result<()> {
    trees.chunk_tree.replace(new.key(), &new.to_item(trees.sectorsize))?;
    let extents = |chunk: &Chunk| -> Vec<_> {
        let extents = chunk.device_extents(trees.chunk_tree_uuid);
        extents.map(|(key, extent)| (key, extent.as_bytes().to_vec())).collect()
    };
    let (before, after) = (extents(old), extents(new));
    for (key, _) in before.iter().filter(|extent| !after.contains(extent)) {
        trees.dev_tree.remove(*key)?;
    }
    for (key, extent) in after.iter().filter(|extent| !before.contains(extent)) {
        trees.dev_tree.insert(*key, extent)?;
    }
    update_device_items(trees, devices, old)?;
    update_device_items(trees, devices, new)
}

/// Updates the device items of a chunk's devices.
fn update_device_items(trees: &mut ChunkTrees<'_>, devices: &Devices, chunk: &Chunk) -> Result<()> {
    let tree = &mut *trees.chunk_tree;
    for stripe in chunk.stripes() {
        let key = Key::new(DEV_ITEMS, ItemType::DEV_ITEM, stripe.devid);
        let data = tree.get(key)?.ok_or(Error::MissingItem { tree: tree.tree(), key })?;
        let item: &DevItem =
            read_exact_item(&data).map_err(|problem| Error::item(tree.tree(), key, problem))?;
        let bytes_used = devices.get(stripe.devid).map_or(0, DeviceSpace::bytes_used);
        if item.bytes_used.get() != bytes_used {
            let item = DevItem { bytes_used: bytes_used.into(), ..*item };
            tree.replace(key, item.as_bytes())?;
        }
    }
    Ok(())
}

/// The superblock's array of the system chunks in `chunks`; `None` if they do not fit.
pub fn fitting_system_array(chunks: &ChunkMap, sectorsize: u32) -> Option<Vec<u8>> {
    let bytes = system_chunk_array(chunks.iter(), sectorsize);
    (bytes.len() <= SYS_CHUNK_ARRAY_SIZE).then_some(bytes)
}
