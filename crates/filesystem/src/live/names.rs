//! Names in a tree: entries of directories, and references back to them.
//!
//! A name is in three places: in the DIR_ITEM of its hash, in a DIR_INDEX of its own, and in an
//! INODE_REF of the inode, or in an INODE_EXTREF if that is full.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::item::{
    DirEntries, DirEntry, DirItemHeader, FileType, InodeExtref, InodeExtrefs, InodeRef, InodeRefs,
    NAME_MAX,
};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{FormatError, ItemType, Key, name_hash};
use larder_transaction::{Items, TreeItems};

use crate::changed::Changed;
use crate::error::{Error, Result};
use crate::item::id::InodeId;
use crate::live::inode::LiveInode;
use crate::live::logged_inodes::LoggedInodes;

/// Refuses invalid names.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::AlreadyExists),
        _ if name.contains(&b'/') || name.contains(&0) => {
            Err(Error::Invalid("a name has a slash or a zero"))
        }
        _ => Ok(()),
    }
}

/// The names in one tree.
pub(crate) struct Names {
    tree: Arc<LiveTree>,
    items: TreeItems,
    nodesize: usize,
    has_extended_refs: bool,
    /// Is told of inodes whose names change.
    logged_inodes: Arc<LoggedInodes>,
}

/// A new entry of a directory.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    /// The directory.
    pub(crate) directory: &'a Arc<LiveInode>,
    pub(crate) name: &'a [u8],
    /// Its index in the directory.
    pub(crate) index: u64,
    /// Key of the inode or subvolume that it leads to.
    pub(crate) location: Key,
    pub(crate) file_type: FileType,
    /// The running transaction.
    pub(crate) generation: u64,
}

impl Names {
    pub(crate) fn new(
        tree: &Arc<LiveTree>,
        nodesize: u32,
        has_extended_refs: bool,
        logged_inodes: Arc<LoggedInodes>,
    ) -> Self {
        let items = TreeItems::new(tree.clone());
        let nodesize = nodesize as usize;
        Self { tree: tree.clone(), items, nodesize, has_extended_refs, logged_inodes }
    }

    pub(crate) fn tree(&self) -> &LiveTree {
        &self.tree
    }

    pub(crate) fn items(&mut self) -> &mut TreeItems {
        &mut self.items
    }

    /// Refuses an entry whose name exists, or that does not fit into the item of its hash.
    pub(crate) fn check_free(&self, directory: u64, name: &[u8]) -> Result<()> {
        let key = dir_item_key(directory, name);
        let Some(data) = self.items.get(key)? else { return Ok(()) };
        for entry in DirEntries::new(&data) {
            if entry.map_err(|problem| self.bad(key, problem))?.name == name {
                return Err(Error::AlreadyExists);
            }
        }
        self.check_fits_behind(data.len(), name)
    }

    /// Refuses an entry that does not fit into the item of its hash.
    pub(crate) fn check_room(&self, directory: u64, name: &[u8]) -> Result<()> {
        let data = self.items.get(dir_item_key(directory, name))?;
        data.map_or(Ok(()), |data| self.check_fits_behind(data.len(), name))
    }

    fn check_fits_behind(&self, len_bytes: usize, name: &[u8]) -> Result<()> {
        let fits = self.fits(len_bytes + DirEntry::len_bytes(name.len(), 0));
        if fits { Ok(()) } else { Err(Error::NameHashFull) }
    }

    /// Refuses a reference that does not fit.
    pub(crate) fn check_ref_room(&self, inode: u64, directory: u64, name: &[u8]) -> Result<()> {
        let len = |key| self.items.get(key).map(|data| data.map_or(0, |data| data.len()));
        let mut plain = Vec::new();
        InodeRef { index: 0, name }.write(&mut plain);
        if self.fits(len(ref_key(inode, directory))? + plain.len()) {
            return Ok(());
        }
        let mut extended = Vec::new();
        InodeExtref { parent: directory, index: 0, name }.write(&mut extended);
        let has_room = self.has_extended_refs
            && self.fits(len(extref_key(inode, directory, name))? + extended.len());
        if has_room { Ok(()) } else { Err(Error::TooManyLinks) }
    }

    fn fits(&self, len_bytes: usize) -> bool {
        len_bytes + ITEM_HEADER_SIZE <= leaf_data_size(self.nodesize)
    }

    /// Inserts a name into a directory.
    pub(crate) fn insert(&mut self, entry: &NewEntry<'_>) -> Changed<()> {
        let bytes = self.insert_hashed(
            entry.directory.number(),
            entry.name,
            entry.location,
            entry.file_type,
            entry.generation,
        )?;
        entry.directory.insert_index(entry.index, bytes)
    }

    /// Inserts a name under its hash only. Returns the entry, which the caller inserts under an
    /// index too.
    pub(crate) fn insert_hashed(
        &mut self,
        directory: u64,
        name: &[u8],
        location: Key,
        file_type: FileType,
        generation: u64,
    ) -> Changed<Vec<u8>> {
        let header = DirItemHeader {
            location: location.into(),
            transid: generation.into(),
            data_len: 0.into(),
            name_len: (name.len() as u16).into(),
            file_type: file_type as u8,
        };
        let mut bytes = Vec::new();
        DirEntry { header: &header, name, data: &[] }.write(&mut bytes);
        self.append(dir_item_key(directory, name), &bytes)?;
        Ok(bytes)
    }

    /// Inserts an item, or appends to it.
    fn append(&mut self, key: Key, bytes: &[u8]) -> Changed<()> {
        match self.items.insert(key, bytes) {
            Err(larder_transaction::Error::ItemExists { .. }) => {}
            // Hardly any two names have the same hash.
            inserted => return inserted,
        }
        let mut data = self.items.get(key)?.unwrap_or_default();
        data.extend_from_slice(bytes);
        self.items.replace(key, &data)
    }

    /// Removes a name from a directory.
    pub(crate) fn remove(
        &mut self,
        directory: &Arc<LiveInode>,
        name: &[u8],
        index: u64,
    ) -> Changed<()> {
        self.remove_hashed(directory.number(), name)?;
        directory.remove_index(index)
    }

    /// Removes a name from the item of its hash only.
    pub(crate) fn remove_hashed(&mut self, directory: u64, name: &[u8]) -> Changed<()> {
        let key = dir_item_key(directory, name);
        let data = self.items.get(key)?.unwrap_or_default();
        let mut rest = Vec::with_capacity(data.len());
        for entry in DirEntries::new(&data) {
            let entry = entry.map_err(|problem| self.bad(key, problem))?;
            if entry.name != name {
                entry.write(&mut rest);
            }
        }
        if rest.len() == data.len() {
            return Err(self.bad(key, FormatError::invalid("directory entry", "it is not there")));
        }
        self.put_or_remove(key, &rest)
    }

    /// Adds an inode's reference to its name.
    pub(crate) fn insert_ref(
        &mut self,
        inode: u64,
        directory: u64,
        name: &[u8],
        index: u64,
    ) -> Changed<()> {
        self.note_change(inode);
        let key = ref_key(inode, directory);
        let mut bytes = Vec::new();
        InodeRef { index, name }.write(&mut bytes);
        let len = self.items.get(key)?.map_or(0, |data| data.len());
        if self.fits(len + bytes.len()) {
            return self.append(key, &bytes);
        }
        bytes.clear();
        InodeExtref { parent: directory, index, name }.write(&mut bytes);
        self.append(extref_key(inode, directory, name), &bytes)
    }

    /// The index of a name, from the inode's reference to it.
    pub(crate) fn index_of(&self, inode: u64, directory: u64, name: &[u8]) -> Changed<u64> {
        let key = ref_key(inode, directory);
        for link in InodeRefs::new(&self.items.get(key)?.unwrap_or_default()) {
            let link = link.map_err(|problem| self.bad(key, problem))?;
            if link.name == name {
                return Ok(link.index);
            }
        }
        let key = extref_key(inode, directory, name);
        for link in InodeExtrefs::new(&self.items.get(key)?.unwrap_or_default()) {
            let link = link.map_err(|problem| self.bad(key, problem))?;
            if (link.parent, link.name) == (directory, name) {
                return Ok(link.index);
            }
        }
        Err(self.bad(key, FormatError::invalid("inode reference", "a name has none")))
    }

    /// Removes an inode's reference to a name, and returns the name's index.
    pub(crate) fn remove_ref(&mut self, inode: u64, directory: u64, name: &[u8]) -> Changed<u64> {
        self.note_change(inode);
        let key = ref_key(inode, directory);
        let data = self.items.get(key)?.unwrap_or_default();
        let (mut rest, mut found) = (Vec::with_capacity(data.len()), None);
        for link in InodeRefs::new(&data) {
            let link = link.map_err(|problem| self.bad(key, problem))?;
            if link.name == name {
                found = Some(link.index);
            } else {
                link.write(&mut rest);
            }
        }
        if let Some(index) = found {
            self.put_or_remove(key, &rest)?;
            return Ok(index);
        }
        self.remove_extref(inode, directory, name)
    }

    fn remove_extref(&mut self, inode: u64, directory: u64, name: &[u8]) -> Changed<u64> {
        let key = extref_key(inode, directory, name);
        let data = self.items.get(key)?.unwrap_or_default();
        let (mut rest, mut found) = (Vec::with_capacity(data.len()), None);
        for link in InodeExtrefs::new(&data) {
            let link = link.map_err(|problem| self.bad(key, problem))?;
            if (link.parent, link.name) == (directory, name) {
                found = Some(link.index);
            } else {
                link.write(&mut rest);
            }
        }
        let missing = || FormatError::invalid("inode reference", "a name has none");
        let index = found.ok_or_else(|| self.bad(key, missing()))?;
        self.put_or_remove(key, &rest)?;
        Ok(index)
    }

    fn note_change(&self, inode: u64) {
        self.logged_inodes.names_changed(InodeId { subvolume: self.tree.id(), number: inode });
    }

    fn put_or_remove(&mut self, key: Key, rest: &[u8]) -> Changed<()> {
        if rest.is_empty() { self.items.remove(key) } else { self.items.replace(key, rest) }
    }

    fn bad(&self, key: Key, problem: impl Into<FormatError>) -> larder_transaction::Error {
        larder_transaction::Error::Item { tree: self.items.tree(), key, problem: problem.into() }
    }
}

fn dir_item_key(directory: u64, name: &[u8]) -> Key {
    Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(name))
}

fn ref_key(inode: u64, directory: u64) -> Key {
    Key::new(inode, ItemType::INODE_REF, directory)
}

fn extref_key(inode: u64, directory: u64, name: &[u8]) -> Key {
    Key::new(inode, ItemType::INODE_EXTREF, name_hash::extended_ref(directory, name))
}
