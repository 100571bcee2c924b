//! The entries of directories: by hash, and by index.

use larder_format::item::{DirItemHeader, FileType};
use larder_format::{DiskKey, ItemType, Key, name_hash};
use zerocopy::IntoBytes;

use crate::MkfsError;
use crate::settings::{GENERATION, Settings};
use crate::source::{Kind, Source, SourceEntry, Subvolume};
use crate::tree::Emit;

/// The size of a directory with these names.
pub(super) fn directory_size(subvolume: &Subvolume, directory: &SourceEntry) -> u64 {
    let names = directory.children().map(|at| subvolume.name(subvolume.node(at)).len());
    names.sum::<usize>() as u64 * 2
}

/// Emits the entries of the directory at node `at`.
pub(crate) fn directory_items(
    source: &Source,
    subvolume: &Subvolume,
    at: u32,
    settings: &Settings,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let directory = subvolume.node(at);
    let mut by_hash: Vec<(u64, u32)> = directory
        .children()
        .map(|child| (name_hash::dir_name(subvolume.name(subvolume.node(child))), child))
        .collect();
    by_hash.sort_unstable();
    let mut data = Vec::new();
    for same_hash in by_hash.chunk_by(|one, other| one.0 == other.0) {
        data.clear();
        for (_, child) in same_hash {
            write_entry(source, subvolume, *child, &mut data);
        }
        if data.len() > settings.max_item_size() {
            let problem = "more names with one hash than fit an item".into();
            return Err(MkfsError::Unsupported { path: subvolume.path(at), problem });
        }
        emit(Key::new(directory.inode, ItemType::DIR_ITEM, same_hash[0].0), &data)?;
    }
    for child in directory.children() {
        data.clear();
        write_entry(source, subvolume, child, &mut data);
        let index = subvolume.directory_index(child);
        emit(Key::new(directory.inode, ItemType::DIR_INDEX, index), &data)?;
    }
    Ok(())
}

fn write_entry(source: &Source, subvolume: &Subvolume, at: u32, data: &mut Vec<u8>) {
    let node = subvolume.node(at);
    let (location, file_type) = match node.kind {
        Kind::Subvolume(index) => {
            let id = source.subvolumes[index as usize].id;
            (Key::new(id, ItemType::ROOT_ITEM, u64::MAX), FileType::Directory)
        }
        Kind::Directory => (inode_key(node), FileType::Directory),
        Kind::File => (inode_key(node), FileType::Regular),
        Kind::Symlink => (inode_key(node), FileType::Symlink),
        Kind::Special(file_type) => (inode_key(node), file_type),
    };
    let name = subvolume.name(node);
    let header = DirItemHeader {
        location: DiskKey::from(location),
        transid: GENERATION.into(),
        data_len: 0.into(),
        name_len: (name.len() as u16).into(),
        file_type: file_type as u8,
    };
    data.extend_from_slice(header.as_bytes());
    data.extend_from_slice(name);
}

fn inode_key(node: &SourceEntry) -> Key {
    Key::new(node.inode, ItemType::INODE_ITEM, 0)
}
