//! A tree of files in memory.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{DirEntries, FileExtent, FileType, InodeExtrefs, InodeItem, InodeRefs};
use larder_format::objectid::{FIRST_FREE, LAST_FREE, ORPHAN};
use larder_format::{ItemType, Key, name_hash};
use zerocopy::FromBytes;

use crate::repair::update::Edits;

/// A name and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) target: Key,
    pub(super) transid: u64,
    pub(super) file_type: u8,
    pub(super) name: Vec<u8>,
}

/// A name as an inode tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) directory: u64,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// An inode and what it has.
#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) item: Option<InodeItem>,
    /// Whether the item was lost, and made again.
    pub(super) is_made: bool,
    pub(super) references: Vec<Reference>,
    /// Names in references of the extended form.
    pub(super) extended: BTreeSet<Vec<u8>>,
    pub(super) has_extents: bool,
    /// The right value of nbytes.
    pub(super) covered_bytes: u64,
    /// The end of what holds data.
    pub(super) written_end: u64,
    /// Ranges of the file that have an extent, and bytes of the inline one.
    pub(super) covered: Vec<(u64, u64)>,
    /// Offsets of holes.
    pub(super) holes: Vec<u64>,
    pub(super) inline_bytes: Option<u64>,
}

/// A tree of files in memory.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) by_index: BTreeMap<(u64, u64), Entry>,
    pub(super) by_hash: BTreeMap<Key, Vec<Entry>>,
    pub(super) orphans: BTreeSet<u64>,
    /// References of the extended form in items with something wrong: inode, directory and name.
    pub(super) misplaced: Vec<(u64, u64, Vec<u8>)>,
    /// Bytes that the data of an item can have.
    pub(super) item_bytes: usize,
    /// The subvolumes of the file system.
    pub(super) subvolumes: BTreeSet<u64>,
    /// Whether it is a snapshot, which has the entries of its source, also those that lead nowhere.
    pub(super) is_snapshot: bool,
    pub(super) edits: Edits,
}

/// What is known of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) generation: u64,
    pub(crate) sectorsize: u64,
    pub(crate) has_no_holes: bool,
    /// Bytes that the data of an item can have.
    pub(crate) item_bytes: usize,
}

impl Tree {
    pub(super) fn add(&mut self, key: Key, data: &[u8]) {
        let ino = key.objectid;
        match key.item_type {
            ItemType::ORPHAN_ITEM if ino == ORPHAN => drop(self.orphans.insert(key.offset)),
            _ if !(FIRST_FREE..=LAST_FREE).contains(&ino) => {}
            ItemType::INODE_ITEM => self.add_inode(key, data),
            ItemType::INODE_REF => {
                let references = InodeRefs::new(data);
                let is_whole = references.clone().all(|it| it.is_ok());
                for it in references.flatten() {
                    let (directory, index, name) = (key.offset, it.index, it.name.to_vec());
                    let inode = self.inodes.entry(ino).or_default();
                    inode.references.push(Reference { directory, index, name });
                }
                if !is_whole {
                    self.edits.insert(key, None);
                }
            }
            ItemType::INODE_EXTREF => {
                let references = InodeExtrefs::new(data);
                let is_own =
                    |parent, name: &[u8]| name_hash::extended_ref(parent, name) == key.offset;
                let is_whole =
                    references.clone().all(|it| it.is_ok_and(|it| is_own(it.parent, it.name)));
                for it in references.flatten() {
                    let (directory, index, name) = (it.parent, it.index, it.name.to_vec());
                    if !is_whole {
                        self.misplaced.push((ino, directory, name.clone()));
                    }
                    let inode = self.inodes.entry(ino).or_default();
                    inode.extended.insert(name.clone());
                    inode.references.push(Reference { directory, index, name });
                }
                if !is_whole {
                    self.edits.insert(key, None);
                }
            }
            ItemType::DIR_ITEM => {
                let entries = DirEntries::new(data);
                self.by_hash.insert(key, entries.flatten().map(|it| Entry::of(&it)).collect());
            }
            ItemType::DIR_INDEX => match DirEntries::new(data).next() {
                Some(Ok(entry)) => {
                    self.by_index.insert((ino, key.offset), Entry::of(&entry));
                }
                _ => drop(self.edits.insert(key, None)),
            },
            ItemType::EXTENT_DATA => self.add_extent(key, data),
            _ => {}
        }
    }

    fn add_inode(&mut self, key: Key, data: &[u8]) {
        let right = Key::new(key.objectid, ItemType::INODE_ITEM, 0);
        let inode = self.inodes.entry(key.objectid).or_default();
        // Up to the mode and the flags; what is missing counts as zero.
        let mut whole = [0; size_of::<InodeItem>()];
        let len = data.len().min(whole.len());
        whole[..len].copy_from_slice(&data[..len]);
        let item = InodeItem::read_from_bytes(&whole).expect("has its size");
        let is_enough = data.len() >= 72;
        if is_enough && (key == right || inode.item.is_none()) {
            inode.item = Some(item);
        }
        if key != right {
            self.edits.insert(key, None);
        }
        if key != right || data.len() != whole.len() {
            self.edits.insert(right, Some(whole.to_vec()));
        }
    }

    fn add_extent(&mut self, key: Key, data: &[u8]) {
        let inode = self.inodes.entry(key.objectid).or_default();
        inode.has_extents = true;
        let start = key.offset;
        match FileExtent::parse(data) {
            Ok(FileExtent::Inline { header, data }) => {
                let len = header.ram_bytes.get();
                inode.covered_bytes += len;
                inode.inline_bytes = Some(data.len() as u64);
                inode.written_end = inode.written_end.max(start.saturating_add(len));
                inode.covered.push((start, start.saturating_add(len)));
            }
            Ok(FileExtent::Regular { extent, preallocated, .. }) => {
                let end = start.saturating_add(extent.num_bytes.get());
                inode.covered.push((start, end));
                if extent.disk_bytenr().is_none() {
                    inode.holes.push(start);
                } else {
                    inode.covered_bytes = inode.covered_bytes.wrapping_add(extent.num_bytes.get());
                    if !preallocated {
                        inode.written_end = inode.written_end.max(end);
                    }
                }
            }
            Err(_) => {}
        }
    }

    /// The type of an inode: by its mode, or else by what it has.
    pub(super) fn file_type(&self, ino: u64) -> Option<FileType> {
        let inode = self.inodes.get(&ino)?;
        let item = inode.item?;
        let mode = item.mode.get();
        let by_mode = FileType::from_mode(mode).filter(|_| mode <= 0o177_777);
        by_mode.or_else(|| Some(self.type_by_content(ino)))
    }

    /// The type of an inode without a mode: what its names say, or what it has.
    pub(super) fn type_by_content(&self, ino: u64) -> FileType {
        let target = Key::new(ino, ItemType::INODE_ITEM, 0);
        let named = self.by_index.values().chain(self.by_hash.values().flatten());
        let mut named = named.filter(|entry| entry.target == target);
        let by_name = named.find_map(|entry| FileType::from_disk(entry.file_type));
        let known = by_name.filter(|it| *it != FileType::Unknown && *it != FileType::Xattr);
        known.unwrap_or_else(|| {
            let has_entries = self.by_index.range((ino, 0)..=(ino, u64::MAX)).next().is_some();
            if has_entries || ino == FIRST_FREE { FileType::Directory } else { FileType::Regular }
        })
    }
}

impl Entry {
    fn of(entry: &larder_format::item::DirEntry<'_>) -> Self {
        Self {
            target: entry.header.location.get(),
            transid: entry.header.transid.get(),
            file_type: entry.header.file_type,
            name: entry.name.to_vec(),
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let header = larder_format::item::DirItemHeader {
            location: self.target.into(),
            transid: self.transid.into(),
            data_len: 0.into(),
            name_len: (self.name.len() as u16).into(),
            file_type: self.file_type,
        };
        larder_format::item::DirEntry { header: &header, name: &self.name, data: &[] }.write(out);
    }

    pub(super) fn hash_key(&self, directory: u64) -> Key {
        Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(&self.name))
    }
}
