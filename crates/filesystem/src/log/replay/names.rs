//! Names: entries of directories and references of inodes.

use larder_format::item::{DirEntries, FileType, InodeExtref, InodeItem, InodeRef};
use larder_format::{FormatError, ItemType, Key, name_hash};
use larder_transaction::Error;

use crate::changed::Changed;
use crate::item::links::links_of_item;
use crate::live::inode::{FIRST_INDEX, LAST_INDEX};
use crate::live::names::check_name;
use crate::log::replay::{Replay, bad, wrong};

/// A name in the form of a reference.
struct Name {
    directory: u64,
    index: u64,
    name: Vec<u8>,
}

impl Replay<'_> {
    /// Second pass: an entry of a directory. If the log has its reference too, the entry comes with
    /// that.
    pub(super) fn replay_entry(&mut self, key: Key, data: &[u8]) -> Changed<()> {
        if key.item_type != ItemType::DIR_INDEX {
            return Ok(());
        }
        for entry in DirEntries::new(data) {
            let entry = entry.map_err(|problem| bad(key, problem))?;
            let location = entry.header.location.get();
            let name =
                Name { directory: key.objectid, index: key.offset, name: entry.name.to_vec() };
            let is_subvolume = location.item_type != ItemType::INODE_ITEM;
            if is_subvolume || self.is_in_place(&name, location.objectid)? {
                // Only a commit names a subvolume, never a log.
                continue;
            }
            let Some((_, file_type)) = self.inode(location.objectid)? else { continue };
            if self.has_logged_reference(&name, location.objectid)? {
                continue;
            }
            self.enter(key, &name, location.objectid, file_type)?;
            let Name { directory, index, name } = &name;
            self.names.insert_ref(location.objectid, *directory, name, *index)?;
        }
        Ok(())
    }

    /// Third pass: all references of an inode with one key. Those that the subvolume has and the
    /// log does not have are removed.
    pub(super) fn replay_references(&mut self, key: Key, data: &[u8]) -> Changed<()> {
        let inode = key.objectid;
        if inode == key.offset && key.item_type == ItemType::INODE_REF {
            // The root of the subvolume, which has no name in it.
            return Ok(());
        }
        let (_, file_type) = self.existing_inode(key)?;
        let logged = names_of(key, data).map_err(|problem| bad(key, problem))?;
        if !self.has_directories(&logged)? {
            // Its directory was not logged, so the name need not survive.
            return Ok(());
        }
        let stored = self.tree.get(key)?.unwrap_or_default();
        let stored = names_of(key, &stored).map_err(|problem| self.bad_own(key, problem))?;
        for old in stored {
            if !logged.iter().any(|new| (new.directory, &new.name) == (old.directory, &old.name)) {
                self.unlink(old.directory, &old.name, inode)?;
            }
        }
        let mut references = Vec::new();
        for name in &logged {
            if self.inode(name.directory)?.is_none() {
                continue;
            }
            if !self.is_in_place(name, inode)? {
                self.enter(key, name, inode, file_type)?;
            }
            let Name { directory: parent, index, name } = name;
            let (parent, index) = (*parent, *index);
            match key.item_type {
                ItemType::INODE_REF => InodeRef { index, name }.write(&mut references),
                _ => InodeExtref { parent, index, name }.write(&mut references),
            }
        }
        Ok(self.tree.put(key, &references)?)
    }

    fn has_directories(&self, names: &[Name]) -> Changed<bool> {
        for name in names {
            if self.inode(name.directory)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the log has an inode's reference to this name.
    fn has_logged_reference(&self, wanted: &Name, inode: u64) -> Changed<bool> {
        let hash = name_hash::extended_ref(wanted.directory, &wanted.name);
        for key in [
            Key::new(inode, ItemType::INODE_REF, wanted.directory),
            Key::new(inode, ItemType::INODE_EXTREF, hash),
        ] {
            let Some(data) = self.log.get(key)? else { continue };
            let names = names_of(key, &data).map_err(|problem| bad(key, problem))?;
            let is_it =
                |name: &Name| (name.directory, &name.name) == (wanted.directory, &wanted.name);
            if names.iter().any(is_it) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a directory has this name for the inode already, at the same index.
    fn is_in_place(&self, name: &Name, inode: u64) -> Changed<bool> {
        let leads_to_it = |location: Key| {
            (location.objectid, location.item_type) == (inode, ItemType::INODE_ITEM)
        };
        let by_name = self.entry(name.directory, &name.name)?;
        let by_index = self.entry_at(name.directory, name.index)?;
        Ok(by_name.is_some_and(leads_to_it)
            && by_index
                .is_some_and(|(there, location)| there == name.name && leads_to_it(location)))
    }

    /// The inode of the entry with this name.
    fn entry(&self, directory: u64, name: &[u8]) -> Changed<Option<Key>> {
        let key = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(name));
        let data = self.tree.get(key)?.unwrap_or_default();
        for entry in DirEntries::new(&data) {
            let entry = entry.map_err(|problem| self.bad_own(key, problem))?;
            if entry.name == name {
                return Ok(Some(entry.header.location.get()));
            }
        }
        Ok(None)
    }

    /// The name at this index, and its inode.
    fn entry_at(&self, directory: u64, index: u64) -> Changed<Option<(Vec<u8>, Key)>> {
        let key = index_key(directory, index);
        let Some(data) = self.tree.get(key)? else { return Ok(None) };
        let Some(entry) = DirEntries::new(&data).next() else { return Ok(None) };
        let entry = entry.map_err(|problem| self.bad_own(key, problem))?;
        Ok(Some((entry.name.to_vec(), entry.header.location.get())))
    }

    /// Inserts a name into its directory, and removes whatever is in its way. The caller inserts
    /// the reference.
    fn enter(&mut self, key: Key, name: &Name, inode: u64, file_type: FileType) -> Changed<()> {
        let &Name { directory, index, ref name } = name;
        check_name(name).map_err(|_| wrong(key, "it has an invalid name"))?;
        if !(FIRST_INDEX..=LAST_INDEX).contains(&index) {
            return Err(wrong(key, "it has a name at an index that no listing shows"));
        }
        let parent = self.inode(directory)?;
        if parent.is_none_or(|(_, file_type)| file_type != FileType::Directory) {
            return Err(wrong(key, "it has a name in an inode that is no directory"));
        }
        if let Some(location) = self.entry(directory, name)? {
            self.drop_entry(directory, name, location)?;
        }
        if let Some((there, location)) = self.entry_at(directory, index)? {
            self.drop_entry(directory, &there, location)?;
        }
        let location = Key::new(inode, ItemType::INODE_ITEM, 0);
        let generation = self.recovery.handle().generation();
        let entry = self.names.insert_hashed(directory, name, location, file_type, generation)?;
        self.tree.insert(index_key(directory, index), &entry)?;
        self.grow(directory, 2 * name.len() as i64)?;
        self.changed.insert(inode);
        Ok(())
    }

    /// Removes the name of an entry that leads to `location`.
    pub(super) fn drop_entry(&mut self, directory: u64, name: &[u8], location: Key) -> Changed<()> {
        if location.item_type != ItemType::INODE_ITEM {
            let key = Key::new(directory, ItemType::DIR_INDEX, 0);
            return Err(wrong(key, "it takes the name of a subvolume"));
        }
        self.unlink(directory, name, location.objectid)
    }

    /// Removes a name from an inode and from its directory.
    fn unlink(&mut self, directory: u64, name: &[u8], inode: u64) -> Changed<()> {
        let index = self.names.remove_ref(inode, directory, name)?;
        self.names.remove_hashed(directory, name)?;
        if !self.tree.delete(index_key(directory, index))? {
            return Err(Error::MissingItem {
                tree: self.subvolume,
                key: index_key(directory, index),
            });
        }
        self.changed.insert(inode);
        self.grow(directory, -2 * name.len() as i64)
    }

    fn grow(&self, directory: u64, bytes: i64) -> Changed<()> {
        let Some((item, _)) = self.inode(directory)? else { return Ok(()) };
        let size = item.size.get().saturating_add_signed(bytes).into();
        self.put_inode(directory, &InodeItem { size, ..item })
    }

    /// An invalid item of the subvolume.
    pub(super) fn bad_own(&self, key: Key, problem: FormatError) -> Error {
        Error::Item { tree: self.subvolume, key, problem }
    }
}

fn index_key(directory: u64, index: u64) -> Key {
    Key::new(directory, ItemType::DIR_INDEX, index)
}

/// The names in an item of references.
fn names_of(key: Key, data: &[u8]) -> Result<Vec<Name>, FormatError> {
    let mut names = Vec::new();
    links_of_item(key, data, |directory, index, name| {
        names.push(Name { directory, index, name: name.to_vec() });
    })?;
    Ok(names)
}
