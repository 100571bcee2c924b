//! Removing a directory with all that is in it.
//!
//! Several threads remove files, of many directories at once: a walk collects them in a batch.
//!
//! # Invariants
//! - Depth costs no stack.
//! - A directory is removed after all that the walk found in it, and soon after: one with few files
//!   by the thread that removes these.
//! - A batch is bounded.
//! - A directory that another program moves away, or that lies below one, keeps what is in it from
//!   then on: while the server removes files of a directory, no name moves, and it looks first
//!   whether the way down is still the same.
//! - The removal ends soon after its client: telling the client of progress then fails.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::{io, mem};

use larder::{Directory, Entry, FileType, Inode};
use larder_ioctl::channel::{Kind, ReceiveNews, frame};
use larder_platform::errno::in_words;
use rustix::io::Errno;

use super::changes::{Changing, MOST_UNTOLD, Untold};
use super::rights;
use crate::protocol::Notice;
use crate::server::access::{Caller, EXECUTE, READ, WRITE};
use crate::server::call::{Outcome, Refused, failed};
use crate::server::numbers::number_of;
use crate::server::state::Server;

/// A batch has so many names. The client is told after each.
const MOST_NAMES: usize = 512;
/// For fewer names, starting further threads does not pay.
const FEW_NAMES: usize = 32;
/// The most files of a directory that one thread removes.
const MOST_TOGETHER: usize = 64;

/// Removes the directory at `path` with all that is in it. Goes on after an error, which is
/// reported. Fails if the client is gone.
pub(super) fn remove_tree(changing: &mut Changing<'_>, path: &[u8]) -> io::Result<()> {
    let found = changing.tree.parent_and_name(path).and_then(|(above, name)| {
        let name = OsStr::from_bytes(name);
        let directory = above.child(name).and_then(Inode::into_directory).map_err(failed)?;
        Ok((above, name.to_owned(), directory))
    });
    if let Ok((above, name, directory)) = &found {
        changing.forget_below(above, name, directory);
    }
    let path_above = path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)].to_vec();
    let (frames, batch) = Default::default();
    let mut removal = Removal { changing, path: path_above, frames, batch };
    match found {
        Ok((above, name, directory)) => {
            let top = Arc::new(Place { directory: above, at: None });
            removal.enter(&top, name, directory)?;
        }
        Err(errno) => return removal.report(path, errno),
    }
    while let Some(frame) = removal.frames.last_mut() {
        let Some(entry) = frame.directories.pop() else {
            removal.leave()?;
            continue;
        };
        let above = frame.place.clone();
        // The mount does not open a subvolume that is being received.
        if removal.changing.tree.server.hidden.has(&above.directory, entry.name()) {
            removal.report(&removal.path_of(entry.name()), Errno::BUSY)?;
            continue;
        }
        match entry.open().and_then(Inode::into_directory) {
            Ok(directory) => removal.enter(&above, entry.name().to_owned(), directory)?,
            Err(error) => {
                let path = removal.path_of(entry.name());
                removal.note(&above.directory, entry.name(), &path, Err(failed(error)))?;
            }
        }
    }
    removal.remove_batch()
}

/// A directory, and where the walk found it.
struct Place {
    directory: Directory,
    /// The place above and the name there; `None` for the directory in which the walk began.
    at: Option<(Arc<Self>, OsString)>,
}

impl Place {
    /// Refuses another inode than this directory, which another program may have put there.
    fn check_is(&self, found: &Inode) -> Result<(), Refused> {
        if *found == *self.directory { Ok(()) } else { Err(Refused(Errno::NOENT)) }
    }

    /// Whether the way down to it is still the same.
    fn is_there(&self) -> bool {
        let mut place = self;
        while let Some((above, name)) = &place.at {
            let id = (place.directory.subvolume_id(), place.directory.number());
            if above.directory.child_id(name).ok() != Some(id) {
                return false;
            }
            place = above;
        }
        true
    }
}

struct Removal<'c, 's> {
    changing: &'c mut Changing<'s>,
    /// The path of the innermost directory.
    path: Vec<u8>,
    frames: Vec<Frame>,
    batch: Batch,
}

/// Names that are about to be removed.
#[derive(Default)]
struct Batch {
    parts: Vec<Part>,
    /// How many names they have.
    names: usize,
}

/// What is removed of a directory by one thread.
struct Part {
    place: Arc<Place>,
    /// The path of the directory.
    path: Arc<[u8]>,
    /// Files, and anything else that is no directory.
    files: Vec<Entry>,
    /// Whether the directory is empty then, and removed too.
    ends: bool,
}

/// How the removal of a part went.
#[derive(Default)]
struct Removed {
    /// For each file, with the number by which the kernel knows the inode, if it does.
    files: Vec<(Option<u64>, Outcome)>,
    directory: Option<Outcome>,
}

/// A directory that is being emptied.
struct Frame {
    place: Arc<Place>,
    /// Bytes of the path of the directory above.
    path_len: usize,
    /// Subdirectories to come.
    directories: Vec<Entry>,
}

impl Removal<'_, '_> {
    /// Adds the entries of a directory that are no directories to the batch.
    fn enter(
        &mut self,
        above: &Arc<Place>,
        name: OsString,
        directory: Directory,
    ) -> io::Result<()> {
        let path_len = self.path.len();
        self.path = self.path_of(&name);
        let place = Arc::new(Place { directory, at: Some((above.clone(), name)) });
        let path: Arc<[u8]> = self.path.as_slice().into();
        let caller = self.changing.tree.caller;
        let listed = caller
            .check_access(&place.directory, READ | WRITE | EXECUTE)
            .and_then(|()| place.directory.entries().map_err(failed));
        let mut directories = Vec::new();
        match listed {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) if entry.file_type() == FileType::Directory => {
                            directories.push(entry);
                        }
                        Ok(entry) => {
                            self.batch.add(&place, &path, entry);
                            self.remove_if_full()?;
                        }
                        Err(error) => self.report(&path, failed(error))?,
                    }
                }
            }
            Err(errno) => self.report(&path, errno)?,
        }
        self.frames.push(Frame { place, path_len, directories });
        Ok(())
    }

    /// Adds the innermost directory to the batch.
    fn leave(&mut self) -> io::Result<()> {
        let Some(Frame { place, path_len, .. }) = self.frames.pop() else { return Ok(()) };
        self.batch.end(&place, &self.path);
        self.path.truncate(path_len);
        self.remove_if_full()
    }

    fn remove_if_full(&mut self) -> io::Result<()> {
        if self.batch.names >= MOST_NAMES { self.remove_batch() } else { Ok(()) }
    }

    /// Removes all names of the batch that are still where the walk found them.
    fn remove_batch(&mut self) -> io::Result<()> {
        let Batch { parts, names } = mem::take(&mut self.batch);
        // A directory that is empty by now may hold the one before it.
        let (with_files, empty): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| !part.files.is_empty());
        let tree = &self.changing.tree;
        let (server, caller) = (tree.server, tree.caller);
        let remove = |part: &Part| part.remove(server, &caller);
        let removed: Vec<_> = if names < FEW_NAMES {
            with_files.iter().map(remove).collect()
        } else {
            larder_parallel::map_in_stretches(&with_files, remove)
        };
        for (part, removed) in with_files.iter().zip(removed) {
            self.note_part(part, removed)?;
        }
        for part in empty {
            let removed = part.remove(server, &caller);
            self.note_part(&part, removed)?;
        }
        let news = ReceiveNews::Removed(self.changing.removed).body();
        frame::write(self.changing.socket, Kind::Event, &news)
    }

    fn note_part(&mut self, part: &Part, removed: Removed) -> io::Result<()> {
        let Part { place, path, files, .. } = part;
        for (entry, (known, outcome)) in files.iter().zip(removed.files) {
            self.changing.untold.extend(known.map(Untold::Unnamed));
            self.note(&place.directory, entry.name(), &joined(path, entry.name()), outcome)?;
        }
        if let (Some(outcome), Some((above, name))) = (removed.directory, &place.at) {
            self.note(&above.directory, name, path, outcome)?;
        }
        Ok(())
    }

    /// Notes the removal of a name, or reports why it failed.
    fn note(
        &mut self,
        directory: &Directory,
        name: &OsStr,
        path: &[u8],
        removed: Outcome,
    ) -> io::Result<()> {
        match removed {
            // Another program was faster.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return self.report(path, errno),
            Ok(()) => {}
        }
        let Changing { tree, untold, removed, .. } = &mut *self.changing;
        let id = tree.server.nodes.id_of(directory);
        if tree.server.nodes.knows(id) {
            untold.extend(Notice::name_and_directory(id, name).map(Untold::Notice));
        }
        *removed += 1;
        if untold.len() >= MOST_UNTOLD {
            self.changing.tell();
        }
        Ok(())
    }

    fn report(&mut self, path: &[u8], errno: Errno) -> io::Result<()> {
        let shown = String::from_utf8_lossy(path);
        self.changing.tell_failure(&format!("rm {shown}: {}", in_words(&errno)))
    }

    /// The path of `name` in the innermost directory.
    fn path_of(&self, name: &OsStr) -> Vec<u8> {
        joined(&self.path, name)
    }
}

impl Batch {
    fn add(&mut self, place: &Arc<Place>, path: &Arc<[u8]>, entry: Entry) {
        self.names += 1;
        let last = self.parts.last_mut().filter(|part| Arc::ptr_eq(&part.place, place));
        match last.filter(|part| part.files.len() < MOST_TOGETHER) {
            Some(part) => part.files.push(entry),
            None => self.parts.push(Part {
                place: place.clone(),
                path: path.clone(),
                files: vec![entry],
                ends: false,
            }),
        }
    }

    /// Adds the directory itself, after all in it.
    fn end(&mut self, place: &Arc<Place>, path: &[u8]) {
        self.names += 1;
        let is_its = |part: &Part| Arc::ptr_eq(&part.place, place);
        match &mut *self.parts {
            [.., before, last] if is_its(last) && !is_its(before) => last.ends = true,
            [only] if is_its(only) => only.ends = true,
            _ => self.parts.push(Part {
                place: place.clone(),
                path: path.into(),
                files: Vec::new(),
                ends: true,
            }),
        }
    }
}

impl Part {
    fn remove(&self, server: &Server, caller: &Caller<'_>) -> Removed {
        let Self { place, files, ends, .. } = self;
        let still = place.directory.without_renames().map_err(failed);
        let _still = match still {
            Ok(still) if place.is_there() => still,
            Ok(_) => return Removed::default(),
            Err(errno) => {
                let files = files.iter().map(|_| (None, Err(errno))).collect();
                return Removed { files, directory: None };
            }
        };
        let files = files.iter().map(|entry| place.remove(entry, server, caller)).collect();
        let directory = place.at.as_ref().filter(|_| *ends).map(|(above, name)| {
            let may = |found: &Inode| {
                place.check_is(found)?;
                Ok(caller.check_may_remove(&above.directory, found)?)
            };
            Ok(above.directory.remove_child_directory_if::<Refused>(name, may)?)
        });
        Removed { files, directory }
    }
}

impl Place {
    /// Removes a file in it. Returns also the number by which the kernel knows the inode, if it
    /// does.
    fn remove(
        &self,
        entry: &Entry,
        server: &Server,
        caller: &Caller<'_>,
    ) -> (Option<u64>, Outcome) {
        let directory = &self.directory;
        let id = number_of(directory.subvolume_id(), entry.inode_number());
        let is_known = server.nodes.knows(id);
        let may = |found: &Inode| {
            if found.number() != entry.inode_number() {
                // Another program was faster, and made a file of this name.
                return Err(Refused(Errno::NOENT));
            }
            if !rights::is_free(caller) {
                caller.check_may_remove(directory, found)?;
            }
            if is_known {
                server.nodes.keep(found.clone());
            }
            Ok(())
        };
        let removed = directory.remove_child_if(entry.name(), may);
        let removed = removed.map_err(|Refused(errno)| errno);
        ((is_known && removed.is_ok()).then_some(id), removed)
    }
}

/// The path of `name` in the directory at `path`.
fn joined(path: &[u8], name: &OsStr) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    [path, slash, name.as_bytes()].concat()
}
