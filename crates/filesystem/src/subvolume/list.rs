//! The subvolumes of a file system: all of them, by path, by id and by UUID.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use larder_btree::{Range, Readahead};
use larder_format::item::{RootItem, uuid_items, uuid_key};
use larder_format::{FormatError, ItemType, Key, Uuid, objectid};
use larder_platform::{OsStrExt, OsStringExt};

use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;
use crate::item::links::check_name;
use crate::item::subvolume_info::{SubvolumeInfo, SubvolumeName};
use crate::scan::paths::Paths;

/// Iterates over the subvolumes in the order of their ids, including the top level and those that
/// are being deleted. After an error it goes on with the next subvolume that can be read.
#[derive(Debug)]
pub struct Subvolumes {
    filesystem: Filesystem,
    items: Range,
    together: SubvolumeItems,
}

/// Assembles subvolumes from items of the root tree, given in order.
#[derive(Debug, Default)]
pub struct SubvolumeItems {
    /// The subvolume whose reference may follow.
    pending: Option<SubvolumeInfo>,
}

impl Filesystem {
    /// The subvolume whose root is at `path` from the top level; `/` is the top level itself.
    pub fn subvolume(&self, path: impl AsRef<Path>) -> Result<Subvolume> {
        let path = path.as_ref();
        let inode = self.subvolume_by_id(objectid::FS_TREE)?.resolve(path)?;
        inode.into_subvolume().map_err(|error| error.about(path))
    }

    /// All subvolumes in the order of their ids, including the top level
    /// ([`is_top_level`](crate::SubvolumeInfo::is_top_level)) and those that are being deleted.
    pub fn subvolumes(&self) -> Subvolumes {
        let (first, last) = SubvolumeItems::RANGE;
        let items = self.root_tree().range(first..=last, Readahead::Forward);
        Subvolumes { filesystem: self.clone(), items, together: SubvolumeItems::default() }
    }

    /// The path of the subvolume `id` from the top level, without a slash at either end: that of
    /// the top level is empty.
    pub fn subvolume_path(&self, id: u64) -> Result<PathBuf> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut seen = HashSet::new();
        let mut at = id;
        while at != objectid::FS_TREE {
            let name = self.core().subvolume_name(at)?.ok_or(Error::NoSuchSubvolume(at))?;
            if !seen.insert(at) {
                return Err(Error::NoSuchSubvolume(id));
            }
            let parent = self.subvolume_by_id(name.parent)?;
            check_name("root reference", &name.name).map_err(|problem| {
                let key = Key::new(at, ItemType::ROOT_BACKREF, name.parent);
                Error::item(objectid::ROOT_TREE, key, problem)
            })?;
            parts.push(name.name);
            let directory = Paths::new(parent).directory(name.directory)?.to_vec();
            if !directory.is_empty() {
                parts.push(directory);
            }
            at = name.parent;
        }
        parts.reverse();
        Ok(OsString::from_vec(parts.join(&b'/')).into())
    }

    /// Deletes the subvolume with this id and all its content, wherever its name is. Its handles
    /// are useless afterwards.
    pub fn delete_subvolume_by_id(&self, id: u64) -> Result<()> {
        let name = self.subvolume_by_id(id)?.name()?;
        let name = name.ok_or(Error::NotPermitted("the top level stays"))?;
        let directory = self.subvolume_by_id(name.parent)?.inode(name.directory)?;
        let is_it = |found: &Inode| match found.subvolume_id() {
            found if found == id => Ok(()),
            _ => Err(Error::NotFound),
        };
        directory.into_directory()?.delete_child_subvolume_if(OsStr::from_bytes(&name.name), is_it)
    }

    /// The subvolumes that have this UUID, or were received from one that has it.
    #[doc(hidden)]
    pub fn subvolumes_of(&self, uuid: Uuid) -> Result<Vec<Subvolume>> {
        let mut found = Vec::new();
        if uuid.is_nil() {
            return Ok(found);
        }
        for id in self.ids_of(uuid)? {
            match self.subvolume_by_id(id) {
                // The uuid tree may be out of date.
                Ok(subvolume) if has_uuid(&subvolume, uuid) => found.push(subvolume),
                Ok(_) | Err(Error::NoSuchSubvolume(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn ids_of(&self, uuid: Uuid) -> Result<Vec<u64>> {
        let superblock = self.superblock();
        if superblock.uuid_tree_generation != superblock.generation {
            // A program that does not know the tree has created or removed subvolumes.
            return self.subvolumes().map(|info| Ok(info?.id)).collect();
        }
        let tree = self.tree(objectid::UUID_TREE)?;
        let mut ids = Vec::new();
        for item_type in [ItemType::UUID_KEY_RECEIVED_SUBVOL, ItemType::UUID_KEY_SUBVOL] {
            let key = uuid_key(uuid, item_type);
            let Some(bytes) = tree.get(key)? else { continue };
            let bad = |problem: FormatError| Error::item(objectid::UUID_TREE, key, problem);
            ids.extend(uuid_items(&bytes).map_err(bad)?.iter().map(|id| id.get()));
        }
        Ok(ids)
    }
}

fn has_uuid(subvolume: &Subvolume, uuid: Uuid) -> bool {
    let item = subvolume.root_item();
    item.uuid() == uuid || item.received_uuid() == uuid
}

impl SubvolumeItems {
    /// The first and the last key of items about a subvolume.
    pub const RANGE: (Key, Key) = (
        Key::new(objectid::FS_TREE, ItemType::ROOT_ITEM, 0),
        Key::new(objectid::LAST_FREE, ItemType::ROOT_BACKREF, u64::MAX),
    );

    /// Takes the next item; `live` returns a newer root item of a subvolume, if there is one.
    /// Returns a subvolume that this completes.
    pub fn add(
        &mut self,
        key: Key,
        bytes: &[u8],
        live: impl FnOnce(u64) -> Option<RootItem>,
    ) -> Result<Option<SubvolumeInfo>> {
        let bad = |problem: FormatError| Error::item(objectid::ROOT_TREE, key, problem);
        match key.item_type {
            ItemType::ROOT_ITEM if objectid::is_subvolume(key.objectid) => {
                let item = RootItem::parse(bytes).map_err(bad)?;
                let item = live(key.objectid).unwrap_or(item);
                let info = SubvolumeInfo::new(key.objectid, &item, key.offset, None);
                Ok(self.pending.replace(info))
            }
            ItemType::ROOT_BACKREF => {
                let Some(info) = self.pending.take_if(|info| info.id == key.objectid) else {
                    return Ok(None);
                };
                let name = Some(SubvolumeName::parse(key, bytes).map_err(bad)?);
                Ok(Some(SubvolumeInfo { name, ..info }))
            }
            _ => Ok(None),
        }
    }

    /// There are no more items. Returns the last subvolume, if it is still incomplete.
    pub fn end(&mut self) -> Option<SubvolumeInfo> {
        self.pending.take()
    }
}

impl Subvolumes {
    fn advance(&mut self) -> Result<Option<SubvolumeInfo>> {
        while let Some((key, bytes)) = self.items.next_item()? {
            // The root tree has what commits write.
            let live = |id| self.filesystem.core().live_root_item(id);
            if let Some(info) = self.together.add(key, bytes, live)? {
                return Ok(Some(info));
            }
        }
        Ok(self.together.end())
    }
}

impl Iterator for Subvolumes {
    type Item = Result<SubvolumeInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
