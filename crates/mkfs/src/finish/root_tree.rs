//! The root tree: the roots of all trees, and the names of subvolumes.

use larder_format::item::{
    DirItemHeader, FileType, INODE_ROOT_ITEM_INIT, InodeFlags, InodeItem, InodeRefHeader,
    ROOT_SUBVOL_RDONLY, RootItem, RootRefHeader,
};
use larder_format::{ItemType, Key, Uuid, name_hash, objectid};
use zerocopy::{FromZeros, IntoBytes};

use super::{Layout, Plan};
use crate::MkfsError;
use crate::content::{Attributes, root_reference};
use crate::populate::Filled;
use crate::settings::{GENERATION, Settings};
use crate::source::{ParentEntry, Subvolume};
use crate::tree::{Emit, TreeRoot};

/// Trees in the root tree, except subvolumes and the checksum tree.
const PLANNED: [u64; 7] = [
    objectid::EXTENT_TREE,
    objectid::DEV_TREE,
    objectid::QUOTA_TREE,
    objectid::UUID_TREE,
    objectid::FREE_SPACE_TREE,
    objectid::BLOCK_GROUP_TREE,
    objectid::DATA_RELOC_TREE,
];
/// The entry that names the default subvolume.
const DEFAULT_NAME: &[u8] = b"default";

/// The uuid of a subvolume.
pub(super) fn subvolume_uuid(settings: &Settings, id: u64) -> Uuid {
    settings.derived_uuid(&format!("subvolume {id}"))
}

pub(super) fn items(
    layout: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let settings = layout.settings;
    let mut items: Vec<(Key, Vec<u8>)> = directory_items(layout);
    let mut add_root = |id, item: RootItem| {
        items.push((Key::new(id, ItemType::ROOT_ITEM, 0), item.as_bytes().to_vec()));
    };
    for id in PLANNED {
        if let Some(root) = plan.root_of(id) {
            let mut item = root_item(root, settings);
            if id == objectid::DATA_RELOC_TREE {
                item.root_dirid = objectid::FIRST_FREE.into();
            }
            add_root(id, item);
        }
    }
    add_root(objectid::CSUM_TREE, root_item(layout.earlier.checksums, settings));
    let subvolumes = &layout.source.subvolumes;
    for (subvolume, filled) in subvolumes.iter().zip(&layout.earlier.subvolumes) {
        add_root(subvolume.id, subvolume_root_item(subvolume, filled, settings));
    }
    for subvolume in subvolumes {
        if let Some(entry) = &subvolume.parent {
            let reference = root_reference_item(entry);
            let backward = Key::new(subvolume.id, ItemType::ROOT_BACKREF, entry.tree);
            let forward = Key::new(entry.tree, ItemType::ROOT_REF, subvolume.id);
            items.extend([(backward, reference.clone()), (forward, reference)]);
        }
    }
    items.sort_unstable_by_key(|(key, _)| *key);
    items.iter().try_for_each(|(key, data)| emit(*key, data))
}

/// The directory of the root tree with its one entry.
fn directory_items(layout: &Layout<'_>) -> Vec<(Key, Vec<u8>)> {
    let directory = objectid::ROOT_TREE_DIR;
    let default = layout.source.subvolumes[layout.source.default].id;
    let header = InodeRefHeader { index: 0.into(), name_len: (DEFAULT_NAME.len() as u16).into() };
    let reference = [header.as_bytes(), DEFAULT_NAME].concat();
    let location = Key::new(default, ItemType::ROOT_ITEM, u64::MAX);
    let header = DirItemHeader {
        location: location.into(),
        transid: GENERATION.into(),
        data_len: 0.into(),
        name_len: (DEFAULT_NAME.len() as u16).into(),
        file_type: FileType::Directory as u8,
    };
    let entry = [header.as_bytes(), DEFAULT_NAME].concat();
    let inode =
        Attributes::of_new_directory(layout.settings).inode_item(1, 0, 0, InodeFlags::empty());
    vec![
        (Key::new(objectid::FS_TREE, ItemType::INODE_REF, directory), reference),
        (Key::new(directory, ItemType::INODE_ITEM, 0), inode.as_bytes().to_vec()),
        root_reference(directory),
        (Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(DEFAULT_NAME)), entry),
    ]
}

fn root_item(root: TreeRoot, settings: &Settings) -> RootItem {
    let node_size = settings.node_size as u64;
    RootItem {
        // The kernel's values for an inode that it never uses.
        inode: InodeItem {
            generation: 1.into(),
            size: 3.into(),
            nbytes: node_size.into(),
            nlink: 1.into(),
            mode: 0o040_755.into(),
            ..InodeItem::new_zeroed()
        },
        generation: GENERATION.into(),
        bytenr: root.bytenr.0.into(),
        bytes_used: (root.blocks * node_size).into(),
        refs: 1.into(),
        level: root.level,
        generation_v2: GENERATION.into(),
        ..RootItem::new_zeroed()
    }
}

fn subvolume_root_item(subvolume: &Subvolume, filled: &Filled, settings: &Settings) -> RootItem {
    let mut item = root_item(filled.root, settings);
    item.inode.flags = INODE_ROOT_ITEM_INIT.into();
    item.root_dirid = objectid::FIRST_FREE.into();
    item.flags = if subvolume.read_only { ROOT_SUBVOL_RDONLY } else { 0 }.into();
    item.uuid = subvolume_uuid(settings, subvolume.id).into_bytes();
    item.ctransid = GENERATION.into();
    item.otransid = GENERATION.into();
    (item.ctime, item.otime) = (settings.now, settings.now);
    item
}

/// The data of a `ROOT_REF` and its `ROOT_BACKREF`.
fn root_reference_item(entry: &ParentEntry) -> Vec<u8> {
    let header = RootRefHeader {
        dirid: entry.directory.into(),
        sequence: entry.index.into(),
        name_len: (entry.name.len() as u16).into(),
    };
    [header.as_bytes(), &entry.name].concat()
}
