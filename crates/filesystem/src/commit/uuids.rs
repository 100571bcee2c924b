//! The uuid tree: which subvolumes have a UUID, or were received from the one that has it.

use larder_format::item::uuid_key;
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Uuid, objectid};
use larder_transaction::{Items, TreeItems};

use crate::changed::Changed;
use crate::core::writer::Writer;

/// Inserts a new UUID into the uuid tree, if there is one.
pub(crate) fn enter_uuid(writer: &Writer, uuid: Uuid, id: u64) -> Changed<()> {
    let Some(tree) = writer.manager.trees().open(objectid::UUID_TREE)? else { return Ok(()) };
    let key = uuid_key(uuid, ItemType::UUID_KEY_SUBVOL);
    TreeItems::new(tree).insert(key, &id.to_le_bytes())
}

/// Removes a subvolume from those of a UUID, if it is there.
pub(crate) fn forget_uuid(
    writer: &Writer,
    uuid: Uuid,
    item_type: ItemType,
    id: u64,
) -> Changed<()> {
    let Some(tree) = writer.manager.trees().open(objectid::UUID_TREE)? else { return Ok(()) };
    let (mut tree, key) = (TreeItems::new(tree), uuid_key(uuid, item_type));
    let Some(ids) = tree.get(key)? else { return Ok(()) };
    let is_other = |other: &&[u8]| *other != id.to_le_bytes();
    let rest: Vec<u8> = ids.chunks(8).filter(is_other).flatten().copied().collect();
    match rest.len() {
        0 => tree.remove(key),
        len if len < ids.len() => tree.replace(key, &rest),
        _ => Ok(()),
    }
}

/// Adds a subvolume to those that were received from the one with the UUID `uuid`, if there is a
/// uuid tree and it has room for one more of them.
pub(crate) fn enter_received_uuid(writer: &Writer, uuid: Uuid, id: u64) -> Changed<()> {
    let Some(tree) = writer.manager.trees().open(objectid::UUID_TREE)? else { return Ok(()) };
    if uuid.is_nil() {
        return Ok(());
    }
    let key = uuid_key(uuid, ItemType::UUID_KEY_RECEIVED_SUBVOL);
    let most = leaf_data_size(writer.manager.volume().nodesize() as usize) - ITEM_HEADER_SIZE;
    let mut items = TreeItems::new(tree);
    match items.get(key)? {
        Some(ids) if ids.len() + size_of::<u64>() > most => Ok(()),
        Some(ids) if ids.chunks(8).any(|known| known == id.to_le_bytes()) => Ok(()),
        Some(ids) => items.replace(key, &[&ids[..], &id.to_le_bytes()].concat()),
        None => items.insert(key, &id.to_le_bytes()),
    }
}
