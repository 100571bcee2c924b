//! The ground that a repair stands on where tree blocks or chunks are lost: what salvage puts
//! together in memory, written as one commit.
//!
//! # Invariants
//! - Every block that salvage found and uses stays where it is, if the chunks say so; all others are
//!   written anew, in free space.
//! - The chunk tree says of chunks what salvage read by.
//! - A file extent of an older block comes back only if the extent tree knows of it, as far as that
//!   is left: other files may have its space by now.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use larder_format::item::{
    DevItem, DirItemHeader, FileExtent, FileType, InodeItem, InodeRefHeader,
};
use larder_format::objectid::{
    CHUNK_TREE, DATA_RELOC_TREE, DEV_ITEMS, DEV_TREE, FIRST_FREE, FS_TREE, ROOT_TREE, ROOT_TREE_DIR,
};
use larder_format::{ItemType, Key, name_hash};
use larder_volume::Volume;
use zerocopy::{FromZeros, IntoBytes};

use super::commit::{commit, each_item};
use super::draft::Drafting;
use super::error::RepairError;
use super::extents::Extents;
use crate::salvage::Salvaged;

/// Writes what was salvaged. Returns what there is to say about it, and items that do not come back.
pub(super) fn lay(salvaged: &Salvaged) -> Result<(Vec<String>, Dropped), RepairError> {
    let volume = &salvaged.volume;
    let mut drafting = Drafting::new(volume);
    if !salvaged.has_chunk_tree {
        drafting.draft.notes.push("the chunk tree is put together from what is left".into());
        drafting.draft.whole.insert(CHUNK_TREE, chunk_items(volume));
    }
    if !drafting.is_whole(DEV_TREE) {
        drafting.devices();
    }
    if !drafting.is_whole(DATA_RELOC_TREE) {
        drafting.draft.whole.insert(DATA_RELOC_TREE, new_directory(FIRST_FREE));
    }
    drafting.add_root_directory();
    drafting.drop_old_extents(salvaged);
    drafting.draft.notes.extend(salvaged.doubts());
    drafting.draft.drops_log = true;
    drafting.draft.newest_generation = salvaged.newest_generation;
    let trees = drafting.state.every_tree().into_iter();
    drafting.draft.walked = trees.map(|tree| tree.id).collect();
    let Drafting { mut draft, .. } = drafting;
    commit(volume, &mut draft)?;
    Ok((draft.notes, draft.set_right))
}

/// Items that are not what they were: subvolume and key.
type Dropped = BTreeSet<(u64, Key)>;

/// The items of the chunk tree.
fn chunk_items(volume: &Volume) -> Vec<(Key, Vec<u8>)> {
    let device = |item: DevItem| {
        let key = Key::new(DEV_ITEMS, ItemType::DEV_ITEM, item.devid.get());
        (key, item.as_bytes().to_vec())
    };
    let mut items: Vec<(Key, Vec<u8>)> =
        volume.devices().iter().map(|it| device(it.dev_item())).collect();
    let sectorsize = volume.sectorsize();
    items.extend(volume.chunks().iter().map(|chunk| (chunk.key(), chunk.to_item(sectorsize))));
    items.sort_unstable_by_key(|item| item.0);
    items
}

/// An empty directory that is the root of its tree.
fn new_directory(ino: u64) -> Vec<(Key, Vec<u8>)> {
    let item = InodeItem {
        generation: 1.into(),
        nlink: 1.into(),
        mode: 0o040_755.into(),
        ..InodeItem::new_zeroed()
    };
    let name = b"..";
    let header = InodeRefHeader { index: 0.into(), name_len: (name.len() as u16).into() };
    let reference = [header.as_bytes(), name].concat();
    vec![
        (Key::new(ino, ItemType::INODE_ITEM, 0), item.as_bytes().to_vec()),
        (Key::new(ino, ItemType::INODE_REF, ino), reference),
    ]
}

impl Drafting<'_> {
    /// Drops file extents in ranges of keys that older blocks have, if the extent tree does not know
    /// of them.
    fn drop_old_extents(&mut self, salvaged: &Salvaged) {
        let mut lost: BTreeMap<u64, Vec<Range<Key>>> = BTreeMap::new();
        for (tree, range) in salvaged.lost() {
            lost.entry(tree).or_default().push(range.clone());
        }
        if lost.is_empty() {
            return;
        }
        let extents = Extents::read(&self.blocks, &self.state);
        if !extents.is_whole {
            return;
        }
        for (tree, ranges) in lost {
            let Some(root) = self.state.root(tree) else { continue };
            let mut old = Vec::new();
            each_item(&self.blocks, tree, root, &mut |key, data| {
                if key.item_type != ItemType::EXTENT_DATA
                    || !ranges.iter().any(|it| it.contains(&key))
                {
                    return;
                }
                if let Ok(FileExtent::Regular { extent, .. }) = FileExtent::parse(data)
                    && extent.disk_bytenr().is_some()
                    && !extents.may_have(key, extent)
                {
                    old.push(key);
                }
            });
            for key in old {
                let inode = key.objectid;
                self.draft.notes.push(format!(
                    "subvolume {tree}: the data of inode {inode} at {} is lost",
                    key.offset
                ));
                self.draft.set_right.insert((tree, key));
                self.edit(tree, key, None);
            }
        }
    }

    /// Adds the directory of the root tree, which names the default subvolume, if it is lost.
    fn add_root_directory(&mut self) {
        let name = b"default";
        let entry = Key::new(ROOT_TREE_DIR, ItemType::DIR_ITEM, name_hash::dir_name(name));
        let mut items: BTreeMap<Key, Vec<u8>> = new_directory(ROOT_TREE_DIR).into_iter().collect();
        let header = DirItemHeader {
            location: Key::new(FS_TREE, ItemType::ROOT_ITEM, u64::MAX).into(),
            transid: 1.into(),
            data_len: 0.into(),
            name_len: (name.len() as u16).into(),
            file_type: FileType::Directory as u8,
        };
        items.insert(entry, [header.as_bytes(), name].concat());
        let is_lost = |key: &Key| !self.state.root_items.contains_key(key);
        items.retain(|key, _| is_lost(key));
        for (key, data) in items {
            self.edit(ROOT_TREE, key, Some(data));
        }
    }
}
