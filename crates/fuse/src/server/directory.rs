//! Listing directories.
//!
//! # Invariants
//! - An entry's offset is one more than its index in the directory: where a listing goes on depends on
//!   that alone, so that it neither repeats nor misses what was there all the time, whatever else is made
//!   or removed meanwhile.
//! - A listing ends where the directory ended when one last began. What is made or renamed later is not listed, so that
//!   who renames what it is shown comes to an end.

use std::os::unix::ffi::OsStrExt;

use larder::{Directory, Entry, FileType};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::nodes::{Node, number_of};
use super::{Call, Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::{Dirent, EntryOut, ReadIn};

/// Offsets behind `.` and `..`, below all of other entries.
const BEHIND_DOT: u64 = 1;
const BEHIND_DOT_DOT: u64 = 2;
/// `DT_DIR`.
const TYPE_DIRECTORY: u32 = 4;

impl Server {
    pub(super) fn readdir(
        &self,
        call: &Call<'_>,
        from: &ReadIn,
        plus: bool,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let node = self.node(call)?;
        let directory = node.directory()?;
        self.accessed(&directory);
        let most_bytes = from.size as usize;
        let mut listing = Listing { server: self, directory: &directory, plus, most_bytes, reply };
        if from.offset < BEHIND_DOT && !listing.put_dot(node.number(), BEHIND_DOT, b".")? {
            return Ok(());
        }
        if from.offset < BEHIND_DOT_DOT {
            let parent = Self::number_of_parent(&node, &directory);
            if !listing.put_dot(parent, BEHIND_DOT_DOT, b"..")? {
                return Ok(());
            }
        }
        let end_index = node.listing_end(from.offset == 0, || directory.end_index())?;
        for entry in directory.entries_from(from.offset).map_err(failed)? {
            let entry = match entry {
                Ok(entry) if entry.index() >= end_index => return Ok(()),
                Ok(entry) => entry,
                // What was listed up to here is listed; the next call meets the error first.
                Err(_) if !listing.reply.is_empty() => return Ok(()),
                Err(error) => return Err(failed(error)),
            };
            if !listing.put_entry(&entry)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn number_of_parent(node: &Node, directory: &Directory) -> u64 {
        let number = |parent: Directory| number_of(parent.subvolume_id(), parent.number());
        // Where the parent cannot be read the list is the better answer than none.
        directory.parent().map_or(node.number(), number)
    }
}

struct Listing<'l, 'r> {
    server: &'l Server,
    directory: &'l Directory,
    plus: bool,
    most_bytes: usize,
    reply: &'l mut Reply<'r>,
}

impl Listing<'_, '_> {
    /// Appends `.` or `..`, which are not looked up. Returns whether there was room.
    fn put_dot(&mut self, number: u64, offset: u64, name: &[u8]) -> Result<bool, Errno> {
        let attributes = EntryOut::new_zeroed();
        self.put(
            &attributes,
            Dirent { ino: number, off: offset, namelen: 0, typ: TYPE_DIRECTORY },
            name,
        )
    }

    /// Appends an entry. Returns whether there was room.
    fn put_entry(&mut self, entry: &Entry) -> Result<bool, Errno> {
        let name = entry.name().as_bytes();
        if !self.has_room(name) {
            return Ok(false);
        }
        let subvolume = entry.subvolume_id().unwrap_or(entry.directory_subvolume_id());
        let number = number_of(subvolume, entry.inode_number());
        let dirent = Dirent {
            ino: number,
            off: entry.index() + 1,
            namelen: 0,
            typ: directory_type(entry.file_type()),
        };
        let is_hidden = self.server.hidden.has(self.directory, entry.name());
        let found = if self.plus && !is_hidden { entry.open().ok() } else { None };
        // What vanished meanwhile, or cannot be read, is listed without being looked up.
        let found = found.and_then(|inode| self.server.nodes.look_up(inode).ok());
        let attributes = match &found {
            Some((id, node)) => self.server.entry(*id, node),
            None => EntryOut::new_zeroed(),
        };
        let put = self.put(&attributes, dirent, name);
        if let (Some((id, _)), Ok(false) | Err(_)) = (found, &put) {
            self.server.nodes.forget(id, 1);
        }
        put
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
        let attributes_len = if self.plus { size_of::<EntryOut>() } else { 0 };
        let len = attributes_len + size_of::<Dirent>() + name.len().next_multiple_of(8);
        self.reply.len() + len <= self.most_bytes
    }
}

/// A type as `d_type` has it.
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
