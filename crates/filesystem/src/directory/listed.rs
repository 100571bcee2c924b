//! Listing a directory with the attributes of its entries.
//!
//! # Invariants
//! - The entries are those of one moment after the call began, and each leads to the inode that
//!   comes with it.
//! - Attributes are those that the inode had at one moment after the call began. They come from the
//!   tree, unless the inode is in memory, where it may be newer. If an inode entered memory while
//!   the tree is read, it could change and leave again, and the listing could see half of its
//!   change: so such an inode is looked up once more ([`InodeTable::has_entries_since`]).
//! - An inode that was not in memory does not enter it, except a directory: checking that it is
//!   named here means reading its reference, and a program that asks for attributes opens it next.
//!
//! [`InodeTable::has_entries_since`]: crate::live::table::InodeTable::has_entries_since

use std::iter;

use larder_btree::{Readahead, ViewCursor};
use larder_format::{ItemType, Key};

use crate::core::writer::Writer;
use crate::directory::entry::{DirEntry, Entry, Target};
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::item::id::InodeId;
use crate::item::metadata::{FileType, Metadata, parse_item};
use crate::live::table::InodeTable;

/// An entry of a directory with its inode.
#[derive(Debug)]
pub struct ListedEntry {
    /// The entry.
    pub entry: Entry,
    /// The inode; an error if it cannot be read.
    pub found: Result<ListedInode>,
}

/// The inode of a listed entry.
#[derive(Debug)]
pub enum ListedInode {
    /// A directory, or an inode that is in memory already.
    Open(Inode),
    /// Any other inode: its attributes. It does not enter memory.
    Attributes(Metadata),
}

/// Some entries of a directory, and the index of the rest.
#[derive(Debug)]
pub struct Listed {
    /// The entries in the order of their indexes. An error stands for each that cannot be read.
    pub entries: Vec<Result<ListedEntry>>,
    /// The index from which there may be more.
    pub next: Option<u64>,
}

impl Listed {
    /// The entries of `directory` from `index` on: up to `most`, and fewer where that is less work.
    pub(super) fn read(directory: &Directory, index: u64, most: usize) -> Result<Self> {
        directory.check_not_removed()?;
        let (seen, next, found) = match directory.try_live_inode() {
            Some(live) => live.while_locked(|| {
                let (mut seen, mut next) = (Vec::new(), Some(index));
                while seen.is_empty()
                    && let Some(from) = next
                {
                    next = directory.visit_entries(from, |entry| seen.push(entry));
                }
                let is_read = |at: &usize| seen[*at].is_ok();
                if let Some(at) = (most..seen.len()).find(is_read)
                    && let Some(Ok(first_left)) = seen.drain(at..).next()
                {
                    next = Some(first_left.index);
                }
                let found = find_all(directory, &seen);
                (seen, next, found)
            }),
            None => {
                let mut entries = directory.entries_from(index)?;
                let entries = iter::from_fn(|| entries.advance().transpose());
                let seen: Vec<_> = entries.take(most).collect();
                let last = seen.iter().rev().find_map(|entry| entry.as_ref().ok());
                let next = last.and_then(|last| last.index.checked_add(1));
                let next = next.filter(|_| seen.len() == most);
                let found = find_all(directory, &seen);
                (seen, next, found)
            }
        };
        let owned = |found| match found {
            ListedInode::Open(inode) => ListedInode::Open(inode.owned_as(directory)),
            found @ ListedInode::Attributes(_) => found,
        };
        let entries = seen.into_iter().zip(found);
        let entries = entries.map(|(entry, found)| {
            entry.map(|entry| ListedEntry {
                entry: Entry { directory: directory.clone(), found: entry },
                found: found.map(owned),
            })
        });
        Ok(Self { entries: entries.collect(), next })
    }
}

/// The inodes of `entries`, which are those of this moment.
fn find_all(directory: &Directory, entries: &[Result<DirEntry>]) -> Vec<Result<ListedInode>> {
    let table = table(directory);
    let before = table.map(InodeTable::entry_counts);
    let mut found = Vec::with_capacity(entries.len());
    let mut in_tree = Vec::new();
    for entry in entries {
        found.push(match entry {
            Ok(entry) => find_at_once(directory, entry).unwrap_or_else(|number| {
                in_tree.push((number, found.len(), entry));
                Err(Error::NotFound)
            }),
            Err(_) => Err(Error::NotFound),
        });
    }
    // One walk over the leaves that have them.
    in_tree.sort_unstable_by_key(|(number, ..)| *number);
    let mut cursor = directory.subvolume().view().cursor(Readahead::Forward);
    for (number, at, entry) in &in_tree {
        found[*at] = read_found(directory, &mut cursor, *number, entry);
    }
    if let (Some(table), Some(before)) = (table, before) {
        for (number, at, entry) in in_tree {
            if table.has_entries_since(id_of(directory, number), &before) {
                found[at] = open_found(directory, entry);
            }
        }
    }
    found
}

/// The inode of an entry, if it is found without its tree.
fn find_at_once(directory: &Directory, entry: &DirEntry) -> Result<Result<ListedInode>, u64> {
    let number = match entry.target {
        Target::Inode(number) if entry.file_type != FileType::Directory => number,
        _ => return Ok(open_found(directory, entry)),
    };
    match table(directory).map(|table| table.known(id_of(directory, number))) {
        Some(Some(_)) => Ok(open_found(directory, entry)),
        _ => Err(number),
    }
}

fn open_found(directory: &Directory, entry: &DirEntry) -> Result<ListedInode> {
    directory.open_listed(entry).map(ListedInode::Open)
}

/// The inode of an entry as its tree has it.
fn read_found(
    directory: &Directory,
    cursor: &mut ViewCursor,
    number: u64,
    entry: &DirEntry,
) -> Result<ListedInode> {
    let key = Key::new(number, ItemType::INODE_ITEM, 0);
    cursor.seek_near(key)?;
    let Some((_, bytes)) = cursor.item().filter(|(found, _)| *found == key) else {
        return Err(Error::NotFound);
    };
    let (item, file_type) =
        parse_item(bytes).map_err(|problem| directory.subvolume().bad_item(key, problem))?;
    // The entry says otherwise.
    if file_type == FileType::Directory {
        return open_found(directory, entry);
    }
    if table(directory).is_some() && item.nlink.get() == 0 {
        return Err(Error::NotFound);
    }
    let sectorsize = directory.core().sectorsize();
    let metadata = Metadata::new(directory.subvolume().id(), number, file_type, item, sectorsize);
    Ok(ListedInode::Attributes(metadata))
}

/// The inodes in memory, if this directory's can be there.
fn table(directory: &Directory) -> Option<&InodeTable> {
    directory.try_live_inode()?;
    directory.subvolume().filesystem().try_writer().map(Writer::inodes)
}

fn id_of(directory: &Directory, number: u64) -> InodeId {
    InodeId { subvolume: directory.subvolume().id(), number }
}
