//! A chunk in the trees: CHUNK_ITEM, DEV_EXTENTs and the device items' counts, and for system
//! chunks the superblock's array.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::item::{self, ChunkHeader, DevExtent, DevItem, Stripe};
use larder_format::key::DiskKey;
use larder_format::objectid::{CHUNK_TREE, DEV_ITEMS, EXTENT_TREE, FIRST_CHUNK_TREE};
use larder_format::superblock::SYS_CHUNK_ARRAY_SIZE;
use larder_format::{BlockGroupFlags, ItemType, Key, Uuid, read_exact_item};
use larder_volume::{Chunk, ChunkMap};
use zerocopy::IntoBytes;

use super::Devices;
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
    let data = chunk_bytes(chunk, trees.sectorsize);
    trees.chunk_tree.insert(chunk_key(chunk), &data)?;
    for stripe in chunk.stripes() {
        let extent = DevExtent {
            chunk_tree: CHUNK_TREE.into(),
            chunk_objectid: FIRST_CHUNK_TREE.into(),
            chunk_offset: chunk.logical().0.into(),
            length: chunk.bytes_per_stripe().into(),
            chunk_tree_uuid: *trees.chunk_tree_uuid.as_bytes(),
        };
        let key = Key::new(stripe.devid, ItemType::DEV_EXTENT, stripe.physical.0);
        trees.dev_tree.insert(key, extent.as_bytes())?;
    }
    update_device_items(trees, devices, chunk)
}

/// Removes a chunk; `devices` have its space retired.
pub fn remove_chunk(trees: &mut ChunkTrees<'_>, devices: &Devices, chunk: &Chunk) -> Result<()> {
    trees.chunk_tree.remove(chunk_key(chunk))?;
    for stripe in chunk.stripes() {
        let key = Key::new(stripe.devid, ItemType::DEV_EXTENT, stripe.physical.0);
        trees.dev_tree.remove(key)?;
    }
    update_device_items(trees, devices, chunk)
}

/// Updates the device items of a chunk's devices.
fn update_device_items(trees: &mut ChunkTrees<'_>, devices: &Devices, chunk: &Chunk) -> Result<()> {
    let tree = &mut *trees.chunk_tree;
    for stripe in chunk.stripes() {
        let key = Key::new(DEV_ITEMS, ItemType::DEV_ITEM, stripe.devid);
        let data = tree.get(key)?.ok_or(Error::MissingItem { tree: tree.tree(), key })?;
        let item: &DevItem =
            read_exact_item(&data).map_err(|problem| Error::item(tree.tree(), key, problem))?;
        let bytes_used = devices.get(stripe.devid).map_or(0, super::DeviceSpace::bytes_used);
        if item.bytes_used.get() != bytes_used {
            let item = DevItem { bytes_used: bytes_used.into(), ..*item };
            tree.replace(key, item.as_bytes())?;
        }
    }
    Ok(())
}

fn chunk_key(chunk: &Chunk) -> Key {
    Key::new(FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, chunk.logical().0)
}

/// The CHUNK_ITEM of a chunk.
pub fn chunk_bytes(chunk: &Chunk, sectorsize: u32) -> Vec<u8> {
    let stripe_len = STRIPE_LEN_BYTES as u32;
    let header = ChunkHeader {
        length: chunk.len_bytes().into(),
        owner: EXTENT_TREE.into(),
        stripe_len: STRIPE_LEN_BYTES.into(),
        flags: chunk.flags().bits().into(),
        io_align: stripe_len.into(),
        io_width: stripe_len.into(),
        sector_size: sectorsize.into(),
        num_stripes: (chunk.stripes().len() as u16).into(),
        sub_stripes: chunk.profile().sub_stripes().into(),
    };
    let mut bytes = header.as_bytes().to_vec();
    for stripe in chunk.stripes() {
        let item = Stripe {
            devid: stripe.devid.into(),
            offset: stripe.physical.0.into(),
            dev_uuid: *stripe.dev_uuid.as_bytes(),
        };
        bytes.extend(item.as_bytes());
    }
    bytes
}

/// The superblock's array of the system chunks in `chunks`; `None` if they do not fit.
pub fn system_chunk_array(chunks: &ChunkMap, sectorsize: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in chunks.iter().filter(|chunk| chunk.flags().contains(BlockGroupFlags::SYSTEM)) {
        bytes.extend(DiskKey::from(chunk_key(chunk)).as_bytes());
        bytes.extend(chunk_bytes(chunk, sectorsize));
    }
    debug_assert!(
        bytes.is_empty() || item::Chunk::len_bytes_of(&bytes[size_of::<DiskKey>()..]).is_ok()
    );
    (bytes.len() <= SYS_CHUNK_ARRAY_SIZE).then_some(bytes)
}
