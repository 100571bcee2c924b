//! Whole files and trees by their paths, named as in [`std::fs`]. The paths are those of
//! [`by_path`](super::by_path).

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::vec;

use crate::directory::entry::Entry;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::directory::Directory;
use crate::handle::file::File;
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;
use crate::item::metadata::FileType;

/// The permissions of files that were not there.
const PERMISSIONS: u32 = 0o644;
const PERMISSION_BITS: u32 = 0o7777;
/// Data that is copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A directory that is being emptied.
struct Frame {
    directory: Directory,
    above: Directory,
    name: OsString,
    entries: vec::IntoIter<Entry>,
}

impl Subvolume {
    /// All data of the file at `path`. Its memory grows as the data is read.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let mut data = Vec::new();
        loop {
            let start = data.len();
            let left = file.len_bytes().saturating_sub(start as u64).min(PIECE_BYTES as u64);
            data.resize(start + left as usize, 0);
            let len = file.read_at(&mut data[start..], start as u64)?;
            data.truncate(start + len);
            if len == 0 {
                return Ok(data);
            }
        }
    }

    /// Makes `data` all data of the file at `path`, which is created with permissions of 644 if it
    /// is not there.
    pub fn write(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        let file = self.empty_file(path.as_ref(), PERMISSIONS)?;
        file.write_at(data.as_ref(), 0)
    }

    /// Copies the file at `from` to `to`, which is created with the same permissions if it is not
    /// there. Both share the data, unless only one of them has checksums. Returns the length in
    /// bytes.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (source, to) = (self.open_file(from)?, to.as_ref());
        let len_bytes = source.len_bytes();
        if self.resolve(to).is_ok_and(|target| id_of(&target) == id_of(&source)) {
            return Ok(len_bytes);
        }
        let target = self.empty_file(to, source.metadata().mode & PERMISSION_BITS)?;
        if len_bytes > 0 && target.clone_range(&source, 0, len_bytes, 0).is_err() {
            copy_data(&source, &target)?;
        }
        Ok(len_bytes)
    }

    /// Whether something is at `path`. A symbolic link that leads nowhere is nothing.
    ///
    /// # Errors
    /// Fails if that cannot be found out: `ENOTDIR` if something on the way is no directory.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.resolve(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// The directory at `path`, which is created with these permissions if it is not there, with
    /// all directories that lead there.
    pub fn create_directory_all(
        &self,
        path: impl AsRef<Path>,
        permissions: u32,
    ) -> Result<Directory> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        for above in path.ancestors() {
            if self.exists(above)? {
                break;
            }
            missing.push(above);
        }
        for above in missing.into_iter().rev() {
            match self.create_directory(above, permissions) {
                // Another thread was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => drop(created?),
            }
        }
        self.open_directory(path)
    }

    /// Removes what is at `path`: a directory with all that is in it, subvolumes too, or anything
    /// else. A symbolic link is not followed. An error leaves the rest in place.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.lookup(path)?.file_type() {
            FileType::Directory => self.at(path, remove_tree),
            _ => self.remove_file(path),
        }
    }

    /// The regular file at `path`, which is created with these permissions if it is not there.
    pub fn open_or_create(&self, path: impl AsRef<Path>, permissions: u32) -> Result<File> {
        let path = path.as_ref();
        match self.open_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        match self.create(path, permissions) {
            // Another thread was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.open_file(path),
            created => created,
        }
    }

    /// The file at `path` without its data, if it has any.
    fn empty_file(&self, path: &Path, permissions: u32) -> Result<File> {
        let file = self.open_or_create(path, permissions)?;
        file.set_len(0).map(|()| file)
    }
}

fn copy_data(source: &File, target: &File) -> Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    for range in source.data_ranges()? {
        let mut offset = range.start;
        while offset < range.end {
            let len = (range.end - offset).min(PIECE_BYTES as u64) as usize;
            let len = source.read_at(&mut piece[..len], offset)?;
            if len == 0 {
                break;
            }
            target.write_at(&piece[..len], offset)?;
            offset += len as u64;
        }
    }
    target.set_len(source.len_bytes())
}

/// Removes the directory `name` with all that is in it.
fn remove_tree(above: &Directory, name: &OsStr) -> Result<()> {
    let mut removal = Removal::default();
    removal.enter(above.child(name)?, above, name)?;
    while let Some(frame) = removal.frames.last_mut() {
        let Some(entry) = frame.entries.next() else {
            removal.leave()?;
            continue;
        };
        let directory = frame.directory.clone();
        if entry.file_type() == FileType::Directory {
            removal.enter(entry.open()?, &directory, entry.name())?;
        } else {
            directory.remove_child(entry.name())?;
        }
    }
    Ok(())
}

/// A removal of a tree.
#[derive(Default)]
struct Removal {
    /// The directories from the first to the current one.
    frames: Vec<Frame>,
    /// The same, by subvolume and number: a damaged file system may have a directory inside itself.
    above: HashSet<(u64, u64)>,
}

impl Removal {
    fn enter(&mut self, inode: Inode, above: &Directory, name: &OsStr) -> Result<()> {
        if !self.above.insert(id_of(&inode)) {
            return Err(Error::Invalid("a directory that is inside itself"));
        }
        let directory = inode.into_directory()?;
        let entries: Vec<Entry> = directory.entries()?.collect::<Result<_>>()?;
        let (above, name) = (above.clone(), name.to_owned());
        self.frames.push(Frame { directory, above, name, entries: entries.into_iter() });
        Ok(())
    }

    /// Removes the current directory, which is empty now.
    fn leave(&mut self) -> Result<()> {
        let Some(Frame { directory, above, name, .. }) = self.frames.pop() else { return Ok(()) };
        self.above.remove(&id_of(&directory));
        above.remove_child_directory(&name)
    }
}

fn id_of(inode: &Inode) -> (u64, u64) {
    (inode.subvolume_id(), inode.number())
}
