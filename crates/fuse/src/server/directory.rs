//! Listing directories.
//!
//! # Invariants
//! - An entry's offset is one more than its index in the directory. A listing goes on by that
//!   alone, so that it neither repeats nor misses an entry that was there all the time, whatever
//!   else is made or removed meanwhile.
//! - A listing ends where the directory ended when one last began. Entries that are made or renamed
//!   later are not listed, so that a program which renames the entries that it lists comes to an
//!   end.
//! - A reply with attributes may leave out those of some entries: the kernel looks these up when a
//!   program asks for them.

use std::os::unix::ffi::OsStrExt;

use larder::{Directory, Entry, FileType, ListedEntry, ListedInode, Subvolume};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::call::{Call, Outcome, failed};
use super::nodes::FuseNode;
use super::numbers::number_of;
use super::state::Server;
use super::walkers::Shown;
use super::{atime, attributes};
use crate::protocol::Reply;
use crate::protocol::abi::{Dirent, EntryOut, ReadIn};

/// Offsets after `.` and `..`, below those of all other entries.
const BEHIND_DOT: u64 = 1;
const BEHIND_DOT_DOT: u64 = 2;
/// `DT_DIR`.
const TYPE_DIRECTORY: u32 = 4;

pub(super) fn list(
    server: &Server,
    call: &Call<'_>,
    from: &ReadIn,
    plus: bool,
    reply: &mut Reply<'_>,
) -> Outcome {
    let node = server.node(call)?;
    let directory = node.directory()?;
    atime::note_read(&server.options, &directory);
    let most_bytes = from.size as usize;
    let subvolume = directory.subvolume();
    let mut listing = Listing { server, directory: &directory, subvolume, plus, most_bytes, reply };
    if from.offset < BEHIND_DOT && !listing.put_dot(node.number(), BEHIND_DOT, b".")? {
        return Ok(());
    }
    if from.offset < BEHIND_DOT_DOT {
        let parent = number_of_parent(&node, &directory);
        if !listing.put_dot(parent, BEHIND_DOT_DOT, b"..")? {
            return Ok(());
        }
    }
    let end_index = node.listing_end(from.offset == 0, || directory.end_index())?;
    if !plus {
        return listing.put_names(from.offset, end_index);
    }
    let shown = server.walkers.list(call.caller.thread.pid, from.offset == 0);
    if shown == Shown::Directories {
        return listing.put_names(from.offset, end_index);
    }
    let mut to_hold_back = usize::from(shown == Shown::AllButOne);
    listing.put_with_inodes(from.offset, end_index, &mut to_hold_back)?;
    if shown == Shown::AllButOne && to_hold_back == 0 {
        server.walkers.held_back(call.caller.thread.pid);
    }
    Ok(())
}

fn number_of_parent(node: &FuseNode, directory: &Directory) -> u64 {
    let number = |parent: Directory| number_of(parent.subvolume_id(), parent.number());
    // If the parent cannot be read, a listing is better than an error.
    directory.parent().map_or(node.number(), number)
}

struct Listing<'l, 'r> {
    server: &'l Server,
    directory: &'l Directory,
    subvolume: &'l Subvolume,
    plus: bool,
    most_bytes: usize,
    reply: &'l mut Reply<'r>,
}

impl Listing<'_, '_> {
    /// Appends `.` or `..`, which count as no lookup. Returns whether there was room.
    fn put_dot(&mut self, number: u64, offset: u64, name: &[u8]) -> Result<bool, Errno> {
        let attributes = EntryOut::new_zeroed();
        self.put(
            &attributes,
            Dirent { ino: number, off: offset, namelen: 0, typ: TYPE_DIRECTORY },
            name,
        )
    }

    /// Appends the entries from `index` up to `end_index`, as far as there is room. If attributes
    /// are wanted, only directories come with them.
    fn put_names(&mut self, index: u64, end_index: u64) -> Outcome {
        for entry in self.directory.entries_from(index).map_err(failed)? {
            let entry = match self.or_later(entry)? {
                Some(entry) if entry.index() < end_index => entry,
                _ => return Ok(()),
            };
            if !self.has_room(entry.name().as_bytes()) {
                return Ok(());
            }
            let is_shown = self.plus && entry.file_type() == FileType::Directory;
            // An inode that vanished meanwhile, or cannot be read, is listed without a lookup.
            let found = if is_shown { entry.open().ok().map(ListedInode::Open) } else { None };
            self.put_entry(&entry, found)?;
        }
        Ok(())
    }

    /// Appends the entries from `index` up to `end_index` with their inodes, as far as there is
    /// room. The attributes of the first `to_hold_back` entries that are no directories are left
    /// out.
    fn put_with_inodes(&mut self, index: u64, end_index: u64, to_hold_back: &mut usize) -> Outcome {
        let mut next = Some(index);
        while let Some(index) = next {
            let room = self.most_bytes.saturating_sub(self.reply.len());
            let most = room / self.len_of(b"n");
            if most == 0 {
                return Ok(());
            }
            let listed = self.directory.list_with_inodes(index, most).map_err(failed)?;
            for listed in listed.entries {
                let ListedEntry { entry, found } = match self.or_later(listed)? {
                    Some(listed) if listed.entry.index() < end_index => listed,
                    _ => return Ok(()),
                };
                if !self.has_room(entry.name().as_bytes()) {
                    return Ok(());
                }
                let is_held_back = entry.file_type() != FileType::Directory && *to_hold_back > 0;
                *to_hold_back -= usize::from(is_held_back);
                // An inode that cannot be read is listed without a lookup.
                self.put_entry(&entry, found.ok().filter(|_| !is_held_back))?;
            }
            next = listed.next;
        }
        Ok(())
    }

    /// The entry. `None` for an error after other entries: the next call meets it first.
    fn or_later<T>(&self, listed: larder::Result<T>) -> Result<Option<T>, Errno> {
        match listed {
            Ok(listed) => Ok(Some(listed)),
            Err(_) if !self.reply.is_empty() => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Appends an entry, for which there is room, and looks up its inode.
    fn put_entry(&mut self, entry: &Entry, found: Option<ListedInode>) -> Outcome {
        let name = entry.name().as_bytes();
        let subvolume = entry.subvolume_id().unwrap_or(entry.directory_subvolume_id());
        let number = number_of(subvolume, entry.inode_number());
        let dirent = Dirent {
            ino: number,
            off: entry.index() + 1,
            namelen: 0,
            typ: directory_type(entry.file_type()),
        };
        let is_hidden = || self.server.hidden.has(self.directory, entry.name());
        let found = found.filter(|_| !is_hidden());
        let attributes = found.and_then(|found| self.look_up(found).ok());
        let put = self.put(&attributes.unwrap_or_else(EntryOut::new_zeroed), dirent, name);
        if let (Some(EntryOut { nodeid, .. }), Err(_)) = (attributes, &put) {
            self.server.nodes.forget(nodeid, 1);
        }
        put.map(drop)
    }

    fn look_up(&self, found: ListedInode) -> Result<EntryOut, Errno> {
        let server = self.server;
        match found {
            ListedInode::Open(inode) => {
                let (id, node) = server.nodes.look_up(inode)?;
                Ok(attributes::entry(server, id, &node))
            }
            ListedInode::Attributes(metadata) => {
                let id = server.nodes.look_up_listed(self.subvolume, metadata.inode)?;
                // The kernel may have data of a file that has no space yet.
                if metadata.allocated_bytes == 0
                    && let Some(node) = server.nodes.open_node(id)
                {
                    return Ok(attributes::entry(server, id, &node));
                }
                Ok(attributes::listed_entry(server, self.subvolume, &metadata))
            }
        }
    }

    fn put(&mut self, attributes: &EntryOut, dirent: Dirent, name: &[u8]) -> Result<bool, Errno> {
        if !self.has_room(name) {
            return Ok(false);
        }
        if self.plus {
            self.reply.put(attributes)?;
        }
        self.reply.put(&Dirent { namelen: name.len() as u32, ..dirent })?;
        self.reply.put_bytes(name)?;
        let padding = name.len().next_multiple_of(8) - name.len();
        self.reply.put_bytes(&0u64.as_bytes()[..padding])?;
        Ok(true)
    }

    fn has_room(&self, name: &[u8]) -> bool {
        self.reply.len() + self.len_of(name) <= self.most_bytes
    }

    /// The bytes that the entry `name` takes in a reply.
    fn len_of(&self, name: &[u8]) -> usize {
        let attributes_len = if self.plus { size_of::<EntryOut>() } else { 0 };
        attributes_len + size_of::<Dirent>() + name.len().next_multiple_of(8)
    }
}

/// A type in the form of `d_type`.
fn directory_type(file_type: FileType) -> u32 {
    match file_type {
        FileType::Fifo => 1,
        FileType::CharDevice => 2,
        FileType::Directory => TYPE_DIRECTORY,
        FileType::BlockDevice => 6,
        FileType::Regular => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
    }
}
