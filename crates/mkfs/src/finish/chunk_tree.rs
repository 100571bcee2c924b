//! Chunks and devices: the chunk tree, the device tree, and the array of system chunks.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::item::{ChunkHeader, DevExtent, Stripe};
use larder_format::{DiskKey, ItemType, Key, objectid};
use larder_volume::Chunk;
use zerocopy::IntoBytes;

use super::{Layout, Plan, dev_item};
use crate::MkfsError;
use crate::settings::Settings;
use crate::space::Space;
use crate::tree::Emit;

/// The chunk tree.
pub(super) fn items(
    layout: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let (space, settings) = (&plan.space, layout.settings);
    for device in space.devices() {
        let key = Key::new(objectid::DEV_ITEMS, ItemType::DEV_ITEM, device.devid);
        emit(key, dev_item(space, device, settings).as_bytes())?;
    }
    for group in space.groups() {
        emit(chunk_key(&group.chunk), &chunk_item(&group.chunk, settings))?;
    }
    Ok(())
}

fn chunk_key(chunk: &Chunk) -> Key {
    Key::new(objectid::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, chunk.logical().0)
}

fn chunk_item(chunk: &Chunk, settings: &Settings) -> Vec<u8> {
    let header = ChunkHeader {
        length: chunk.len_bytes().into(),
        owner: objectid::EXTENT_TREE.into(),
        stripe_len: STRIPE_LEN_BYTES.into(),
        flags: chunk.flags().bits().into(),
        io_align: (STRIPE_LEN_BYTES as u32).into(),
        io_width: (STRIPE_LEN_BYTES as u32).into(),
        sector_size: (settings.sector_size as u32).into(),
        num_stripes: (chunk.stripes().len() as u16).into(),
        sub_stripes: chunk.profile().sub_stripes().into(),
    };
    let mut item = header.as_bytes().to_vec();
    for stripe in chunk.stripes() {
        let stripe = Stripe {
            devid: stripe.devid.into(),
            offset: stripe.physical.0.into(),
            dev_uuid: stripe.dev_uuid.into_bytes(),
        };
        item.extend_from_slice(stripe.as_bytes());
    }
    item
}

/// Keys and items of the system chunks, for the superblock.
pub(super) fn system_chunk_array(space: &Space, settings: &Settings) -> Vec<u8> {
    let system = space
        .groups()
        .iter()
        .filter(|group| group.flags().contains(larder_format::BlockGroupFlags::SYSTEM));
    system
        .flat_map(|group| {
            let key = DiskKey::from(chunk_key(&group.chunk));
            [key.as_bytes(), &chunk_item(&group.chunk, settings)].concat()
        })
        .collect()
}

/// The device tree.
pub(super) fn device_items(
    layout: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let mut extents: Vec<(Key, &Chunk)> = Vec::new();
    for group in plan.space.groups() {
        for stripe in group.chunk.stripes() {
            let key = Key::new(stripe.devid, ItemType::DEV_EXTENT, stripe.physical.0);
            extents.push((key, &group.chunk));
        }
    }
    extents.sort_unstable_by_key(|(key, _)| *key);
    for (key, chunk) in extents {
        let item = DevExtent {
            chunk_tree: objectid::CHUNK_TREE.into(),
            chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
            chunk_offset: chunk.logical().0.into(),
            length: chunk.bytes_per_stripe().into(),
            chunk_tree_uuid: layout.chunk_tree_uuid.into_bytes(),
        };
        emit(key, item.as_bytes())?;
    }
    Ok(())
}
