//! Removing a directory with all that is in it.
//!
//! Several threads remove files, of many directories at once: a walk collects them in a batch.
//!
//! # Invariants
//! - Depth costs no stack.
//! - A directory is removed after all that the walk found in it: within a batch, files go first, and
//!   then directories, in the order in which the walk left them.
//! - A batch is bounded.
//! - The removal ends soon after its client: telling the client of progress then fails.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::{io, mem};

use larder::{Directory, Entry, FileType, Inode, parallel};
use larder_ioctl::channel::{Kind, ReceiveNews, frame};
use rustix::io::Errno;

use super::changes::{Changing, MOST_UNTOLD, Untold};
use crate::protocol::Notice;
use crate::server::access::{Caller, EXECUTE, READ, WRITE};
use crate::server::call::{Outcome, failed};
use crate::server::nodes::number_of;
use crate::server::state::Server;

/// A batch has so many names. The client is told after each.
const MOST_NAMES: usize = 512;
/// For fewer files, starting further threads does not pay.
const FEW_FILES: usize = 32;

/// Removes the directory at `path` with all that is in it. Goes on after an error, which is
/// reported. Fails if the client is gone.
pub(super) fn remove_tree(changing: &mut Changing<'_>, path: &[u8]) -> io::Result<()> {
    let found = changing.tree.parent_and_name(path).and_then(|(above, name)| {
        let name = OsStr::from_bytes(name);
        let directory = above.child(name).and_then(Inode::into_directory).map_err(failed)?;
        Ok((above, name.to_owned(), directory))
    });
    changing.tree.forget_directories();
    if let Ok((above, name, _)) = &found {
        changing.forget_below(above, name);
    }
    let path_above = path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)].to_vec();
    let (frames, batch) = Default::default();
    let mut removal = Removal { changing, path: path_above, frames, batch };
    match found {
        Ok((above, name, directory)) => removal.enter(above, name, directory)?,
        Err(errno) => return removal.report(path, errno),
    }
    while let Some(frame) = removal.frames.last_mut() {
        let Some(entry) = frame.directories.pop() else {
            removal.leave()?;
            continue;
        };
        let above = frame.directory.clone();
        // The mount does not open a subvolume that is being received.
        if removal.changing.tree.server.hidden.has(&above, entry.name()) {
            removal.report(&removal.path_of(entry.name()), Errno::BUSY)?;
            continue;
        }
        match entry.open().and_then(Inode::into_directory) {
            Ok(directory) => removal.enter(above, entry.name().to_owned(), directory)?,
            Err(error) => {
                let path = removal.path_of(entry.name());
                removal.note(&above, entry.name(), &path, Err(failed(error)))?;
            }
        }
    }
    removal.remove_batch()
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
    files: Vec<LeftFile>,
    directories: Vec<LeftDirectory>,
}

/// A file, or anything else that is no directory.
struct LeftFile {
    directory: Directory,
    /// The path of the directory.
    path: Arc<[u8]>,
    entry: Entry,
}

/// A directory that is empty once the batch has removed its files.
struct LeftDirectory {
    directory: Directory,
    above: Directory,
    name: OsString,
    path: Vec<u8>,
}

/// A directory that is being emptied.
struct Frame {
    directory: Directory,
    /// The directory that contains it, and its name there.
    above: Directory,
    name: OsString,
    /// Bytes of the path of that directory.
    path_len: usize,
    /// Subdirectories to come.
    directories: Vec<Entry>,
}

impl Removal<'_, '_> {
    /// Adds the entries of a directory that are no directories to the batch.
    fn enter(&mut self, above: Directory, name: OsString, directory: Directory) -> io::Result<()> {
        let path_len = self.path.len();
        self.path = self.path_of(&name);
        let path: Arc<[u8]> = self.path.as_slice().into();
        let caller = self.changing.tree.caller;
        let listed = caller
            .check_access(&directory, READ | WRITE | EXECUTE)
            .and_then(|()| directory.entries().map_err(failed));
        let mut directories = Vec::new();
        match listed {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) if entry.file_type() == FileType::Directory => {
                            directories.push(entry);
                        }
                        Ok(entry) => {
                            let (directory, path) = (directory.clone(), path.clone());
                            self.batch.files.push(LeftFile { directory, path, entry });
                            self.remove_if_full()?;
                        }
                        Err(error) => self.report(&path, failed(error))?,
                    }
                }
            }
            Err(errno) => self.report(&path, errno)?,
        }
        self.frames.push(Frame { directory, above, name, path_len, directories });
        Ok(())
    }

    /// Adds the innermost directory to the batch.
    fn leave(&mut self) -> io::Result<()> {
        let Some(Frame { above, name, path_len, directory, .. }) = self.frames.pop() else {
            return Ok(());
        };
        let path = self.path.clone();
        self.path.truncate(path_len);
        self.batch.directories.push(LeftDirectory { directory, above, name, path });
        self.remove_if_full()
    }

    fn remove_if_full(&mut self) -> io::Result<()> {
        let is_full = self.batch.files.len() + self.batch.directories.len() >= MOST_NAMES;
        if is_full { self.remove_batch() } else { Ok(()) }
    }

    /// Removes all names of the batch.
    fn remove_batch(&mut self) -> io::Result<()> {
        let Batch { files, directories } = mem::take(&mut self.batch);
        let tree = &self.changing.tree;
        let (server, caller) = (tree.server, tree.caller);
        let remove = |file: &LeftFile| file.remove(server, &caller);
        let removed: Vec<_> = if files.len() < FEW_FILES {
            files.iter().map(remove).collect()
        } else {
            parallel::map_in_stretches(&files, remove)
        };
        for (LeftFile { directory, path, entry }, (known, outcome)) in files.iter().zip(removed) {
            self.changing.untold.extend(known.map(Untold::Unnamed));
            self.note(directory, entry.name(), &joined(path, entry.name()), outcome)?;
        }
        for LeftDirectory { directory, above, name, path } in directories {
            let removed = caller
                .check_may_remove(&above, &directory)
                .and_then(|()| above.remove_child_directory(&name).map_err(failed));
            self.note(&above, &name, &path, removed)?;
        }
        let news = ReceiveNews::Removed(self.changing.removed).body();
        frame::write(self.changing.socket, Kind::Event, &news)
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
        self.changing.report("rm", path, &format!("rm {shown}: {}", io::Error::from(errno)))
    }

    /// The path of `name` in the innermost directory.
    fn path_of(&self, name: &OsStr) -> Vec<u8> {
        joined(&self.path, name)
    }
}

impl LeftFile {
    /// Removes it. Returns also the number by which the kernel knows the inode, if it does.
    fn remove(&self, server: &Server, caller: &Caller<'_>) -> (Option<u64>, Outcome) {
        let Self { directory, entry, .. } = self;
        let id = number_of(directory.subvolume_id(), entry.inode_number());
        let is_known = server.nodes.knows(id);
        let may_all = caller.is_privileged && server.owners.is_empty();
        let opened = if is_known || !may_all {
            entry.open().map_err(failed).and_then(|inode| {
                caller.check_may_remove(directory, &inode)?;
                if is_known {
                    server.nodes.keep(inode);
                }
                Ok(())
            })
        } else {
            Ok(())
        };
        let known = (is_known && opened.is_ok()).then_some(id);
        let remove = |()| directory.remove_child(entry.name()).map_err(failed);
        (known, opened.and_then(remove))
    }
}

/// The path of `name` in the directory at `path`.
fn joined(path: &[u8], name: &OsStr) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    [path, slash, name.as_bytes()].concat()
}
