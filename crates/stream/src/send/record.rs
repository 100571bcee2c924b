//! Inodes as the tree has them, read in tree order: all items that a send needs are adjacent, so
//! most inodes take one step of a cursor for each item and no search.

use larder_btree::{Cursor, Readahead};
use larder_filesystem::{Error, FileType, Link, Subvolume, Xattr};
use larder_format::item::{DirEntries, FileExtent, InodeExtrefs, InodeItem, InodeRefs};
use larder_format::{FormatError, ItemType, Key, objectid, read_exact_item};
use larder_platform::OsStrExt;
use std::ffi::OsStr;

use crate::wire::Timestamp;

/// An inode that has names, or is the root.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) ino: u64,
    pub(super) item: InodeItem,
    pub(super) file_type: FileType,
    /// In tree order; the root has none.
    pub(super) links: Vec<Link>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) content: Content,
}

/// The content of a file or symbolic link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing.
    Empty,
    /// This, and nothing else.
    Inline(Vec<u8>),
    /// Extents, to be looked up.
    Extents,
}

impl Record {
    pub(super) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub(super) fn is_root(&self) -> bool {
        self.ino == objectid::FIRST_FREE
    }

    /// Last access, last change of content, last change of the inode, creation.
    pub(super) fn times(&self) -> [Timestamp; 4] {
        let InodeItem { atime, mtime, ctime, otime, .. } = self.item;
        [atime, mtime, ctime, otime]
            .map(|time| Timestamp { seconds: time.seconds(), nanoseconds: time.nsec.get() })
    }

    pub(super) fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.xattrs.iter().find(|xattr| xattr.name.as_bytes() == name);
        found.map(|xattr| &*xattr.value)
    }
}

/// The type of an inode that has names or is the root; `None` if it is listed for deletion.
pub(super) fn live_type(ino: u64, item: &InodeItem) -> Result<Option<FileType>, FormatError> {
    if item.nlink.get() == 0 && ino != objectid::FIRST_FREE {
        return Ok(None);
    }
    let mode = item.mode.get();
    let file_type = FileType::from_mode(mode);
    file_type.map(Some).ok_or_else(|| FormatError::invalid("inode", format!("mode {mode:o}")))
}

/// Reads inodes of one subvolume.
pub(super) struct Records {
    subvolume: Subvolume,
    cursor: Cursor,
    /// No inode from this number up to the cursor's has items.
    nothing_from: u64,
}

impl Records {
    /// `readahead` says whether all inodes will be read, or only some.
    pub(super) fn new(subvolume: &Subvolume, readahead: Readahead) -> Self {
        let cursor = subvolume.tree().cursor(readahead);
        Self { subvolume: subvolume.clone(), cursor, nothing_from: u64::MAX }
    }

    /// The greatest number that an inode may have; 0 if there is none.
    pub(super) fn last(&self) -> Result<u64, Error> {
        let mut cursor = self.subvolume.tree().cursor(Readahead::None);
        cursor.seek_last(Key::new(objectid::LAST_FREE, ItemType(u8::MAX), u64::MAX))?;
        Ok(cursor.key().map_or(0, |key| key.objectid))
    }

    /// The inode `ino`, which must be there.
    pub(super) fn get(&mut self, ino: u64) -> Result<Record, Error> {
        let key = Key::new(ino, ItemType::INODE_ITEM, 0);
        let missing = Error::MissingItem { tree: self.subvolume.id(), key };
        let found = self.from(ino)?.filter(|record| record.ino == ino);
        found.ok_or(missing)
    }

    /// The first inode whose number is `ino` or greater.
    pub(super) fn from(&mut self, mut ino: u64) -> Result<Option<Record>, Error> {
        loop {
            self.cursor_to(ino)?;
            let Some((key, bytes)) = self.cursor.item() else { return Ok(None) };
            if key.objectid > objectid::LAST_FREE {
                return Ok(None);
            }
            if key.item_type == ItemType::INODE_ITEM {
                let bad = |problem| bad_item(&self.subvolume, key, problem);
                let item: InodeItem = *read_exact_item(bytes).map_err(bad)?;
                if let Some(file_type) = live_type(key.objectid, &item).map_err(bad)? {
                    return self.read(key.objectid, item, file_type).map(Some);
                }
            }
            ino = key.objectid + 1;
        }
    }

    /// Moves to the first item of `ino` or after it: most often the cursor is there already.
    fn cursor_to(&mut self, ino: u64) -> Result<(), Error> {
        let is_there =
            self.nothing_from <= ino && self.cursor.key().is_some_and(|key| key.objectid >= ino);
        if !is_there {
            self.nothing_from = u64::MAX;
            self.cursor.seek(Key::new(ino, ItemType(0), 0))?;
            self.nothing_from = ino;
        }
        Ok(())
    }

    /// Reads the items after the inode item at the cursor.
    fn read(&mut self, ino: u64, item: InodeItem, file_type: FileType) -> Result<Record, Error> {
        let mut record = Record {
            ino,
            item,
            file_type,
            links: Vec::new(),
            xattrs: Vec::new(),
            content: Content::Empty,
        };
        self.nothing_from = u64::MAX;
        while self.cursor.next()?
            && let Some((key, bytes)) = self.cursor.item()
            && key.objectid == ino
        {
            let taken = record.take_item(key, bytes);
            if !taken.map_err(|problem| bad_item(&self.subvolume, key, problem))? {
                return Ok(record);
            }
        }
        self.nothing_from = ino + 1;
        Ok(record)
    }
}

impl Record {
    /// Adds an item; whether later ones may matter.
    fn take_item(&mut self, key: Key, bytes: &[u8]) -> Result<bool, FormatError> {
        match key.item_type {
            ItemType::INODE_REF if !self.is_root() => {
                for link in InodeRefs::new(bytes) {
                    let link = link?;
                    self.add_link(key.offset, link.index, link.name)?;
                }
            }
            ItemType::INODE_EXTREF => {
                for link in InodeExtrefs::new(bytes) {
                    let link = link?;
                    self.add_link(link.parent, link.index, link.name)?;
                }
            }
            ItemType::XATTR_ITEM => {
                for xattr in DirEntries::new(bytes) {
                    let xattr = xattr?;
                    let name = OsStr::from_bytes(xattr.name).to_owned();
                    let value = xattr.data.to_vec();
                    self.xattrs.push(Xattr { name, value });
                }
            }
            ItemType::EXTENT_DATA => {
                self.content = self.content_of(key, FileExtent::parse(bytes)?);
                return Ok(false);
            }
            // The entries of a directory can fill many leaves.
            ItemType::DIR_ITEM | ItemType::DIR_INDEX => return Ok(false),
            _ => {}
        }
        Ok(true)
    }

    fn add_link(&mut self, parent: u64, index: u64, name: &[u8]) -> Result<(), FormatError> {
        check_name(name)?;
        self.links.push(Link { parent, index, name: OsStr::from_bytes(name).to_owned() });
        Ok(())
    }

    /// The content, as far as the first extent tells.
    fn content_of(&self, key: Key, extent: FileExtent<'_>) -> Content {
        match extent {
            FileExtent::Inline { header, data }
                if header.compression == 0
                    && header.encryption == 0
                    && header.other_encoding.get() == 0
                    && key.offset == 0
                    && data.len() as u64 == self.item.size.get() =>
            {
                Content::Inline(data.to_vec())
            }
            _ => Content::Extents,
        }
    }
}

/// Checks that a name is one name, not a path: it becomes part of paths.
pub(super) fn check_name(name: &[u8]) -> Result<(), FormatError> {
    let is_name = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
    if is_name && name != b"." && name != b".." {
        return Ok(());
    }
    Err(FormatError::invalid("inode reference", "the name is invalid"))
}

/// An error about an item of a subvolume.
pub(super) fn bad_item(subvolume: &Subvolume, key: Key, problem: FormatError) -> Error {
    Error::Item { tree: subvolume.id(), key, problem }
}
