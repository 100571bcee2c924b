//! Listing a directory together with the attributes of what it has.
//!
//! # Invariants
//! - The entries are those of one moment after the call began, and each leads to the inode that is
//!   given with it.
//! - Attributes are those that the inode had at one moment after the call began. The tree says what
//!   they are, unless the inode is in memory, where it may be newer. An inode that enters memory
//!   while the tree is read could change and leave again meanwhile, with one part of its change
//!   read and another not: so such an inode is looked up once more
//!   ([`InodeTable::has_entries_since`]).
//! - An inode that was not in memory does not enter it, except a directory: to tell that it is
//!   named here only takes a look at its reference, and a program that asks for attributes opens it
//!   next.
//!
//! [`InodeTable::has_entries_since`]: crate::inode::table::InodeTable::has_entries_since

use larder_btree::{Readahead, ViewCursor};
use larder_format::{ItemType, Key};

use crate::core::writer::Writer;
use crate::directory::entry::{DirEntry, Target};
use crate::directory::handle::Directory;
use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::id::InodeId;
use crate::inode::metadata::{FileType, Metadata, parse_item};
use crate::inode::table::InodeTable;

/// An entry with what it leads to.
#[derive(Debug)]
pub struct ListedEntry {
    /// The entry.
    pub entry: DirEntry,
    /// What it leads to; an error if that cannot be read.
    pub found: Result<Found>,
}

/// What a listed entry leads to.
#[derive(Debug)]
pub enum Found {
    /// A directory, or an inode that is in memory anyway.
    Inode(Inode),
    /// Anything else: its attributes, with nothing of it kept in memory.
    Attributes(Metadata),
}

/// Some entries of a directory, and where it goes on.
#[derive(Debug)]
pub struct Listed {
    /// The entries in the order of their indexes; errors in the place of those that cannot be read.
    pub entries: Vec<Result<ListedEntry>>,
    /// The index from which there may be more.
    pub next: Option<u64>,
}

impl Directory<'_> {
    /// The entries of the directory whose index is `index` or greater, with what they lead to: up
    /// to `most` of them, and fewer where that is less work. The root of a deleted subvolume lists
    /// nothing: `ENOENT`.
    pub fn list_with_inodes(self, index: u64, most: usize) -> Result<Listed> {
        self.check_not_removed()?;
        let (seen, next, found) = match self.try_live_inode() {
            Some(live) => live.while_locked(|| {
                let (mut seen, mut next) = (Vec::new(), Some(index));
                while seen.is_empty()
                    && let Some(from) = next
                {
                    next = self.visit_entries(from, |entry| seen.push(entry));
                }
                let is_read = |at: &usize| seen[*at].is_ok();
                if let Some(at) = (most..seen.len()).find(is_read)
                    && let Some(Ok(first_left)) = seen.drain(at..).next()
                {
                    next = Some(first_left.index);
                }
                let found = self.find_all(&seen);
                (seen, next, found)
            }),
            None => {
                let seen: Vec<_> = self.entries_from(index)?.take(most).collect();
                let last = seen.iter().rev().find_map(|entry| entry.as_ref().ok());
                let next = last.map(|last| last.index + 1).filter(|_| seen.len() == most);
                let found = self.find_all(&seen);
                (seen, next, found)
            }
        };
        let owned = |found| match found {
            Found::Inode(inode) => Found::Inode(inode.owned_as(&self)),
            found @ Found::Attributes(_) => found,
        };
        let entries = seen.into_iter().zip(found);
        let entries = entries.map(|(entry, found)| {
            entry.map(|entry| ListedEntry { entry, found: found.map(owned) })
        });
        Ok(Listed { entries: entries.collect(), next })
    }

    /// What `entries`, which are those of this moment, lead to.
    fn find_all(self, entries: &[Result<DirEntry>]) -> Vec<Result<Found>> {
        let table = self.table();
        let before = table.map(InodeTable::entry_counts);
        let mut found = Vec::with_capacity(entries.len());
        let mut in_tree = Vec::new();
        for entry in entries {
            found.push(match entry {
                Ok(entry) => self.find_at_once(entry).unwrap_or_else(|number| {
                    in_tree.push((number, found.len(), entry));
                    Err(Error::NotFound)
                }),
                Err(_) => Err(Error::NotFound),
            });
        }
        // One walk over the leaves that have them.
        in_tree.sort_unstable_by_key(|(number, ..)| *number);
        let mut cursor = self.subvolume().view().cursor(Readahead::Forward);
        for (number, at, entry) in &in_tree {
            found[*at] = self.read_found(&mut cursor, *number, entry);
        }
        if let (Some(table), Some(before)) = (table, before) {
            for (number, at, entry) in in_tree {
                if table.has_entries_since(self.id_of(number), &before) {
                    found[at] = self.open_found(entry);
                }
            }
        }
        found
    }

    /// What an entry leads to, unless its number is to be looked for in the tree.
    fn find_at_once(self, entry: &DirEntry) -> Result<Result<Found>, u64> {
        let number = match entry.target {
            Target::Inode(number) if entry.file_type != FileType::Directory => number,
            _ => return Ok(self.open_found(entry)),
        };
        match self.table().map(|table| table.known(self.id_of(number))) {
            Some(Some(_)) => Ok(self.open_found(entry)),
            _ => Err(number),
        }
    }

    fn open_found(self, entry: &DirEntry) -> Result<Found> {
        self.open_target(entry.target, &entry.name, Some(entry.index)).map(Found::Inode)
    }

    /// What the tree has of an inode that an entry leads to.
    fn read_found(self, cursor: &mut ViewCursor, number: u64, entry: &DirEntry) -> Result<Found> {
        let key = Key::new(number, ItemType::INODE_ITEM, 0);
        cursor.seek_near(key)?;
        let Some((_, bytes)) = cursor.item().filter(|(found, _)| *found == key) else {
            return Err(Error::NotFound);
        };
        let (item, file_type) =
            parse_item(bytes).map_err(|problem| self.subvolume().bad_item(key, problem))?;
        // Where the entry says otherwise.
        if file_type == FileType::Directory {
            return self.open_found(entry);
        }
        if self.table().is_some() && item.nlink.get() == 0 {
            return Err(Error::NotFound);
        }
        let sectorsize = self.core().sectorsize();
        let metadata = Metadata::new(self.subvolume().id(), number, file_type, item, sectorsize);
        Ok(Found::Attributes(metadata))
    }

    /// The inodes in memory, if any of this directory's can be there.
    fn table(&self) -> Option<&InodeTable> {
        self.try_live_inode()?;
        self.subvolume().filesystem().try_writer().map(Writer::inodes)
    }

    fn id_of(self, number: u64) -> InodeId {
        InodeId { subvolume: self.subvolume().id(), number }
    }
}
