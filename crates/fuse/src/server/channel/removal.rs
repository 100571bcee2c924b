//! Removing a directory with all that is in it.
//!
//! # Invariants
//! - Depth costs no stack.
//! - The removal ends soon after its client: telling the client of progress then fails.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use larder::{Directory, Entry, FileType, Inode};
use larder_ioctl::channel::{Kind, ReceiveNews, frame};
use rustix::io::Errno;

use super::changes::{Changing, MOST_UNTOLD, Untold};
use crate::protocol::Notice;
use crate::server::access::{EXECUTE, READ, WRITE};
use crate::server::call::{Outcome, failed};
use crate::server::nodes::number_of;

/// The client is told after so many names.
const STEP: u64 = 256;

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
    let mut removal = Removal { changing, path: path_above, frames: Vec::new() };
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
                let (name, outcome) = (entry.name(), Err(failed(error)));
                removal.note(&above, name, outcome)?;
            }
        }
    }
    Ok(())
}

struct Removal<'c, 's> {
    changing: &'c mut Changing<'s>,
    /// The path of the innermost directory.
    path: Vec<u8>,
    frames: Vec<Frame>,
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
    /// Removes the entries of a directory that are no directories.
    fn enter(&mut self, above: Directory, name: OsString, directory: Directory) -> io::Result<()> {
        let path_len = self.path.len();
        self.path = self.path_of(&name);
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
                            let removed = self.remove(&directory, &entry);
                            self.note(&directory, entry.name(), removed)?;
                        }
                        Err(error) => self.report(&self.path.clone(), failed(error))?,
                    }
                }
            }
            Err(errno) => self.report(&self.path.clone(), errno)?,
        }
        self.frames.push(Frame { directory, above, name, path_len, directories });
        Ok(())
    }

    fn remove(&mut self, directory: &Directory, entry: &Entry) -> Outcome {
        let Changing { tree, untold, .. } = &mut *self.changing;
        let nodes = &tree.server.nodes;
        let id = number_of(directory.subvolume_id(), entry.inode_number());
        let is_known = nodes.knows(id);
        if is_known || !tree.caller.is_privileged {
            let inode = entry.open().map_err(failed)?;
            tree.caller.check_may_remove(directory, &inode)?;
            if is_known {
                nodes.keep(inode);
                untold.push(Untold::Unnamed(id));
            }
        }
        directory.remove_child(entry.name()).map_err(failed)
    }

    /// Removes the innermost directory, which is empty if all went well.
    fn leave(&mut self) -> io::Result<()> {
        let Some(Frame { above, name, path_len, directory, .. }) = self.frames.pop() else {
            return Ok(());
        };
        let caller = self.changing.tree.caller;
        let removed = caller
            .check_may_remove(&above, &directory)
            .and_then(|()| above.remove_child_directory(&name).map_err(failed));
        self.path.truncate(path_len);
        self.note(&above, &name, removed)
    }

    /// Notes the removal of a name, or reports why it failed.
    fn note(&mut self, directory: &Directory, name: &OsStr, removed: Outcome) -> io::Result<()> {
        match removed {
            // Another program was faster.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return self.report(&self.path_of(name), errno),
            Ok(()) => {}
        }
        let Changing { tree, untold, removed, socket, .. } = &mut *self.changing;
        let id = tree.server.nodes.id_of(directory);
        if tree.server.nodes.knows(id) {
            untold.extend(Notice::name_and_directory(id, name).map(Untold::Notice));
        }
        *removed += 1;
        if removed.is_multiple_of(STEP) {
            frame::write(socket, Kind::Event, &ReceiveNews::Removed(*removed).body())?;
        }
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
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        [&self.path, slash, name.as_bytes()].concat()
    }
}
