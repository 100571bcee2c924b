//! Trees of a few items.

use larder_format::item::{InodeFlags, uuid_key};
use larder_format::{ItemType, Key, objectid};
use zerocopy::IntoBytes;

use super::{Layout, Plan, root_tree};
use crate::MkfsError;
use crate::content::{Attributes, root_reference};
use crate::tree::Emit;

/// The tree for data relocation: an empty directory.
pub(super) fn data_reloc_items(
    layout: &Layout<'_>,
    _: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let directory = objectid::FIRST_FREE;
    let item =
        Attributes::of_new_directory(layout.settings).inode_item(1, 0, 0, InodeFlags::empty());
    emit(Key::new(directory, ItemType::INODE_ITEM, 0), item.as_bytes())?;
    let (key, reference) = root_reference(directory);
    emit(key, &reference)
}

/// The uuid tree: every subvolume by its uuid.
pub(super) fn uuid_items(
    layout: &Layout<'_>,
    _: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let mut items: Vec<(Key, u64)> = layout
        .source
        .subvolumes
        .iter()
        .map(|subvolume| {
            let uuid = root_tree::subvolume_uuid(layout.settings, subvolume.id);
            (uuid_key(uuid, ItemType::UUID_KEY_SUBVOL), subvolume.id)
        })
        .collect();
    items.sort_unstable();
    items.iter().try_for_each(|(key, id)| emit(*key, &id.to_le_bytes()))
}
