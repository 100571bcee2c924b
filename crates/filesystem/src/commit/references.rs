//! The name of a subvolume, and the references that go with it.

use std::sync::Arc;

use larder_format::item::{FileType as EntryType, RootRef};
use larder_format::{ItemType, Key, objectid};
use larder_transaction::{Error as ChangeError, Items, TreeItems};

use crate::changed::Changed;
use crate::core::writer::Writer;
use crate::live::inode::LiveInode;
use crate::live::names::NewEntry;

/// Inserts the name of a subvolume, and the references that go with it.
pub(crate) fn enter_subvolume(
    writer: &Writer,
    directory: &Arc<LiveInode>,
    id: u64,
    name: &[u8],
    index: u64,
    generation: u64,
) -> Changed<()> {
    writer.names_of(directory).insert(&NewEntry {
        directory,
        name,
        index,
        location: Key::new(id, ItemType::ROOT_ITEM, u64::MAX),
        file_type: EntryType::Directory,
        generation,
    })?;
    let mut reference = Vec::new();
    RootRef { dirid: directory.number(), sequence: index, name }.write(&mut reference);
    let mut root_tree = TreeItems::new(writer.manager.trees().root().clone());
    for key in reference_keys(directory.id().subvolume, id) {
        root_tree.insert(key, &reference)?;
    }
    Ok(())
}

/// Removes the references that go with the name of a subvolume in this directory. Returns the index
/// of the name.
pub(crate) fn leave_subvolume(
    writer: &Writer,
    directory: &Arc<LiveInode>,
    id: u64,
) -> Changed<u64> {
    let mut root_tree = TreeItems::new(writer.manager.trees().root().clone());
    let [reference, back] = reference_keys(directory.id().subvolume, id);
    let missing = || ChangeError::MissingItem { tree: objectid::ROOT_TREE, key: back };
    let data = root_tree.get(back)?.ok_or_else(missing)?;
    let index = RootRef::parse(&data).map(|named| named.sequence);
    root_tree.remove(reference)?;
    root_tree.remove(back)?;
    index.map_err(|problem| ChangeError::Item { tree: objectid::ROOT_TREE, key: back, problem })
}

fn reference_keys(parent: u64, id: u64) -> [Key; 2] {
    [Key::new(parent, ItemType::ROOT_REF, id), Key::new(id, ItemType::ROOT_BACKREF, parent)]
}
