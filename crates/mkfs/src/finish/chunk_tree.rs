//! Chunks and devices: the chunk tree, the device tree, and the array of system chunks.

use larder_format::{ItemType, Key, objectid};
use larder_volume::chunk::system_chunk_array;
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
    for device in space.devices().iter() {
        let key = Key::new(objectid::DEV_ITEMS, ItemType::DEV_ITEM, device.devid);
        emit(key, dev_item(space, device, settings).as_bytes())?;
    }
    for group in space.groups() {
        emit(group.chunk.key(), &group.chunk.to_item(settings.sector_size as u32))?;
    }
    Ok(())
}

/// Keys and items of the system chunks, for the superblock.
pub(super) fn system_chunks(space: &Space, settings: &Settings) -> Vec<u8> {
    let chunks = space.groups().iter().map(|group| &group.chunk);
    system_chunk_array(chunks, settings.sector_size as u32)
}

/// The device tree.
pub(super) fn device_items(
    layout: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let groups = plan.space.groups().iter();
    let mut extents: Vec<_> =
        groups.flat_map(|group| group.chunk.device_extents(layout.chunk_tree_uuid)).collect();
    extents.sort_unstable_by_key(|(key, _)| *key);
    for (key, extent) in extents {
        emit(key, extent.as_bytes())?;
    }
    Ok(())
}
