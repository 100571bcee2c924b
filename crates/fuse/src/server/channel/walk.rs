//! Trees that a client reads: names, attributes and data, many in one message.
//!
//! # Invariants
//! - The client learns no more than it could read through the mount, from the directory of its grant
//!   down.
//! - Depth costs no stack, and a directory inside itself does not make the walk endless.
//! - The walk holds no lock while it sends, and it ends soon after its client.
//! - Of a file, the client gets as much data as the ranges before it say, whatever other programs
//!   do meanwhile: zeros where nothing can be read, and the reason.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use larder::{Directory, Entry, File, FileType, Inode, ListedEntry, ListedInode, Metadata};
use larder_ioctl::channel::{Attributes, Kind, Record, WalkRequest, Wants, frame};
use larder_platform::errno::in_words;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::Grant;
use super::changes::gone;
use crate::server::access::{Caller, EXECUTE, READ};
use crate::server::call::{Outcome, failed};
use crate::server::data::missing_data;
use crate::server::owners::Owners;
use crate::server::refusal::{Refusal, refuse};
use crate::server::state::Server;
use crate::transport::Notify;

/// Namespaces of extended attributes that everyone may read, and the one of root.
const OF_ALL: [&[u8]; 2] = [b"security.", b"system."];
const OF_ROOT: &[u8] = b"trusted.";
/// At least so many bytes of records go to the client at once.
const PIECE_BYTES: usize = 256 << 10;
/// The most data in one record.
const MOST_DATA_BYTES: usize = 256 << 10;
/// The most ranges in one record.
const MOST_RANGES: usize = 1024;
/// Entries that are listed at once.
const ENTRIES: usize = 512;
/// A longer path is refused.
const MOST_PATH_BYTES: usize = 256 << 10;

/// Walks through what `request` names.
pub(super) fn walk(
    server: &Server,
    request: &WalkRequest,
    grant: &Grant,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> Result<Vec<u8>, Refusal> {
    if request.wants.data || request.wants.written {
        get_written_data(server, kernel);
    }
    let (directory, caller) = (grant.directory(server)?, grant.caller(server));
    let out = Records { socket, waiting: Vec::new() };
    let (path, frames, above) = Default::default();
    let (wants, shows_trusted) = (request.wants, caller.may(CapabilitySet::SYS_ADMIN));
    let mut walk = Walk { server, caller, wants, shows_trusted, out, path, frames, above };
    let name = OsStr::from_bytes(&request.name);
    let walked = if name.is_empty() {
        walk.enter(directory, name)
    } else {
        caller.check_access(&directory, EXECUTE).map_err(refused)?;
        if server.hidden.has(&directory, name) {
            return Err(refused(Errno::BUSY));
        }
        let child = directory.child(name)?;
        match child.file_type() {
            FileType::Directory => walk.enter(child.into_directory()?, name),
            _ => walk.open_entry(name.as_bytes(), child),
        }
    };
    let walked = walked.and_then(|()| walk.below()).and_then(|()| walk.out.send());
    walked.map_err(|_| gone())?;
    Ok(Vec::new())
}

/// Makes the kernel send the data of files that programs write to, and that it may not have written
/// back yet. It waits for none of it when a program asks for a sync of the file system.
pub(in crate::server) fn get_written_data(server: &Server, kernel: &dyn Notify) {
    for notice in missing_data(server) {
        // It fails if the kernel has nothing of that file.
        let _ = kernel.notify(&notice);
    }
}

fn refused(errno: Errno) -> Refusal {
    refuse(errno, "")
}

/// Gathers records into frames.
struct Records<'s> {
    socket: &'s UnixStream,
    waiting: Vec<u8>,
}

impl Records<'_> {
    fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        record.append(&mut self.waiting);
        if self.waiting.len() >= PIECE_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            frame::write(self.socket, Kind::Data, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}

/// A directory whose subdirectories are being visited.
struct Frame {
    directory: Directory,
    /// Bytes of the path of the directory that contains it.
    path_len: usize,
    /// Subdirectories to come, the last one first.
    directories: Vec<Entry>,
}

/// A walk. Its functions fail if the client is gone.
struct Walk<'s> {
    server: &'s Server,
    caller: Caller<'s>,
    wants: Wants,
    /// Whether the client sees attributes that the kernel shows only to root.
    shows_trusted: bool,
    out: Records<'s>,
    /// The path of the innermost directory.
    path: Vec<u8>,
    frames: Vec<Frame>,
    /// The subvolume and number of each directory in `frames`.
    above: HashSet<(u64, u64)>,
}

impl Walk<'_> {
    fn below(&mut self) -> io::Result<()> {
        while let Some(frame) = self.frames.last_mut() {
            let Some(entry) = frame.directories.pop() else {
                let Frame { directory, path_len, .. } = self.frames.pop().expect("it is there");
                self.above.remove(&id_of(&directory));
                self.path.truncate(path_len);
                continue;
            };
            match entry.open().and_then(Inode::into_directory) {
                Ok(directory) => self.enter(directory, entry.name())?,
                Err(error) => self.fail(entry.name(), failed(error))?,
            }
        }
        Ok(())
    }

    /// Sends a directory and its entries.
    fn enter(&mut self, directory: Directory, name: &OsStr) -> io::Result<()> {
        if self.above.contains(&id_of(&directory)) {
            return self.fail(name, Errno::LOOP);
        }
        let path_len = self.path.len();
        self.extend(name);
        if self.path.len() > MOST_PATH_BYTES {
            self.path.truncate(path_len);
            return self.fail(name, Errno::NAMETOOLONG);
        }
        let metadata = directory.metadata();
        let attributes = attributes_of(&metadata, metadata.allocated_bytes, self.caller.owners());
        self.out.add(&Record::Directory { path: &self.path, attributes })?;
        if self.wants.xattrs
            && let Err(errno) = self.xattrs(&directory)?
        {
            self.fail(OsStr::new(""), errno)?;
        }
        let mut directories = Vec::new();
        if let Err(errno) = self.caller.check_access(&directory, READ | EXECUTE) {
            self.fail(OsStr::new(""), errno)?;
        } else {
            self.entries(&directory, &mut directories)?;
        }
        directories.sort_by(|a, b| b.name().cmp(a.name()));
        self.above.insert(id_of(&directory));
        self.frames.push(Frame { directory, path_len, directories });
        Ok(())
    }

    /// Sends the entries of the innermost directory, and adds those to `directories` that the walk
    /// has to enter.
    fn entries(&mut self, directory: &Directory, directories: &mut Vec<Entry>) -> io::Result<()> {
        let mut next = Some(0);
        while let Some(index) = next {
            let listed = match directory.list_with_inodes(index, ENTRIES) {
                Ok(listed) => listed,
                Err(error) => return self.fail(OsStr::new(""), failed(error)),
            };
            next = listed.next;
            for entry in listed.entries {
                let ListedEntry { entry, found } = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        self.fail(OsStr::new(""), failed(error))?;
                        continue;
                    }
                };
                let name = entry.name();
                // The mount does not open a subvolume that is being received.
                let found = match found {
                    _ if self.server.hidden.has(directory, name) => Err(Errno::BUSY),
                    found => found.map_err(failed),
                };
                match found {
                    Ok(ListedInode::Open(inode)) => self.open_entry(name.as_bytes(), inode)?,
                    Ok(ListedInode::Attributes(metadata)) => {
                        let open = || entry.open().map_err(failed);
                        let taken_bytes = metadata.allocated_bytes;
                        self.entry(name.as_bytes(), &metadata, taken_bytes, open)?;
                    }
                    Err(errno) => {
                        self.fail(name, errno)?;
                        continue;
                    }
                }
                if self.wants.below && entry.file_type() == FileType::Directory {
                    directories.push(entry);
                }
            }
        }
        Ok(())
    }

    /// As [`entry`](Self::entry), for an inode in memory.
    fn open_entry(&mut self, name: &[u8], inode: Inode) -> io::Result<()> {
        let metadata = inode.metadata();
        let taken_bytes = taken_bytes(&inode, &metadata);
        self.entry(name, &metadata, taken_bytes, || Ok(inode))
    }

    /// Sends an entry, and what else the client wants of its inode. The walk enters directories
    /// later, and sends their extended attributes then.
    fn entry(
        &mut self,
        name: &[u8],
        metadata: &Metadata,
        taken_bytes: u64,
        open: impl FnOnce() -> Result<Inode, Errno>,
    ) -> io::Result<()> {
        let Wants { targets, xattrs, data, written, .. } = self.wants;
        let file_type = metadata.file_type;
        let is_left = file_type == FileType::Directory;
        let has_target = targets && file_type == FileType::Symlink;
        let is_file = file_type == FileType::Regular;
        let (has_data, is_read) = (data && is_file, (data || written) && is_file);
        let attributes = attributes_of(metadata, taken_bytes, self.caller.owners());
        if is_left || !(has_target || is_read || xattrs) {
            return self.out.add(&Record::Entry { name, target: b"", attributes });
        }
        let shown = OsStr::from_bytes(name);
        let caller = self.caller;
        let opened = open().and_then(|inode| {
            let target =
                if has_target { inode.link_target().map_err(failed)? } else { PathBuf::new() };
            if is_read {
                caller.check_access(&inode, READ)?;
            }
            let content = if has_data {
                Some(Content::of(&inode, metadata.size_bytes).map_err(failed)?)
            } else {
                None
            };
            Ok((inode, target.into_os_string(), content))
        });
        let (inode, target, content) = match opened {
            Ok(opened) => opened,
            Err(errno) => return self.fail(shown, errno),
        };
        self.out.add(&Record::Entry { name, target: target.as_bytes(), attributes })?;
        if xattrs && let Err(errno) = self.xattrs(&inode)? {
            self.fail(shown, errno)?;
        }
        if let Some(content) = content
            && let Err(errno) = self.data(&content)?
        {
            self.fail(shown, errno)?;
        }
        Ok(())
    }

    /// Sends those that the kernel would show: labels and ACLs to everyone, others to callers that
    /// may read the inode.
    fn xattrs(&mut self, inode: &Inode) -> io::Result<Outcome> {
        let may_read = self.caller.check_access(inode, READ);
        let mut outcome = Ok(());
        for xattr in inode.xattrs() {
            let xattr = match xattr {
                Ok(xattr) => xattr,
                Err(error) => return Ok(Err(failed(error))),
            };
            let name = xattr.name.as_bytes();
            let is_in = |space: &&[u8]| name.starts_with(space);
            let shown = if is_in(&OF_ROOT) {
                self.shows_trusted.then_some(Ok(()))
            } else if OF_ALL.iter().any(is_in) {
                Some(Ok(()))
            } else {
                Some(may_read)
            };
            let Some(shown) = shown else { continue };
            outcome = outcome.and(shown);
            if shown.is_ok() {
                let value = self.caller.owners().shown_xattr(name, xattr.value);
                self.out.add(&Record::Xattr { name, value: &value })?;
            }
        }
        Ok(outcome)
    }

    fn data(&mut self, content: &Content) -> io::Result<Outcome> {
        for ranges in content.ranges.chunks(MOST_RANGES) {
            let ranges = ranges.iter().map(|range| [range.start, range.end]).collect();
            self.out.add(&Record::Ranges(ranges))?;
        }
        let (mut buffer, mut outcome) = (Vec::new(), Ok(()));
        for range in &content.ranges {
            for offset in range.clone().step_by(MOST_DATA_BYTES) {
                buffer.resize((range.end - offset).min(MOST_DATA_BYTES as u64) as usize, 0);
                let read = content.file.read_at(&mut buffer, offset).map_err(failed);
                let read_bytes = read.unwrap_or(0);
                if read_bytes < buffer.len() {
                    buffer[read_bytes..].fill(0);
                    outcome = read.and(Err(Errno::IO));
                }
                self.out.add(&Record::Data { offset, data: &buffer })?;
            }
        }
        Ok(outcome)
    }

    /// Tells the client that the inode `name` in the innermost directory cannot be read, or that
    /// directory itself if there is no name.
    fn fail(&mut self, name: &OsStr, errno: Errno) -> io::Result<()> {
        let path_len = self.path.len();
        if !name.is_empty() {
            self.extend(name);
        }
        let reason = in_words(&errno);
        let record = Record::Failed { path: &self.path, reason: reason.as_bytes() };
        let added = self.out.add(&record);
        self.path.truncate(path_len);
        added
    }

    fn extend(&mut self, name: &OsStr) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
    }
}

/// The data of a file, as far as it reached when it was listed.
struct Content {
    file: File,
    ranges: Vec<Range<u64>>,
}

impl Content {
    fn of(inode: &Inode, len_bytes: u64) -> larder::Result<Self> {
        let file = inode.clone().into_file()?;
        let within = |range: Range<u64>| range.start..range.end.min(len_bytes);
        let ranges = file.data_ranges()?.into_iter().map(within);
        let ranges = ranges.filter(|range| !range.is_empty()).collect();
        Ok(Self { file, ranges })
    }
}

fn id_of(directory: &Directory) -> (u64, u64) {
    (directory.subvolume_id(), directory.number())
}

/// The space of an inode, and the space that its dirty data will need, in bytes.
fn taken_bytes(inode: &Inode, metadata: &Metadata) -> u64 {
    let unplaced_bytes = match metadata.dirty_bytes {
        0 => 0,
        dirty_bytes => inode.unplaced_bytes().unwrap_or(dirty_bytes),
    };
    metadata.allocated_bytes + unplaced_bytes
}

fn attributes_of(metadata: &Metadata, taken_bytes: u64, owners: &Owners) -> Attributes {
    let times = [metadata.atime, metadata.mtime, metadata.ctime, metadata.otime];
    let (major, minor) = metadata.device;
    let (uid, gid) = owners.for_program(metadata);
    Attributes {
        subvolume: metadata.subvolume,
        inode: metadata.inode,
        size_bytes: metadata.size_bytes,
        taken_bytes,
        seconds: times.map(|time| time.seconds),
        nanoseconds: times.map(|time| time.nanoseconds),
        flags: metadata.flags.bits(),
        generation: metadata.generation,
        change_generation: metadata.change_generation,
        sequence: metadata.sequence,
        mode: metadata.mode,
        nlink: metadata.nlink,
        uid,
        gid,
        device: [major, minor],
    }
}
