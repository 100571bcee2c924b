//! From paths to inodes, with a cache of directories.
//!
//! # Invariants
//! - Lookups follow no symbolic link, and enter another subvolume only if the caller allows it.
//! - A cached path is right: removing or moving a name drops the path, and all below it.
//! - What was looked up for a command stays until the command is applied, whatever other programs
//!   move meanwhile: a caller may have checked it.
//! - A directory that a command made or used stays the one of its path, unless a command moves or
//!   removes it: the path leads nowhere once another program has put something else there. So it is
//!   with the last file.
//! - If a directory is cached, so are all directories above it.

use std::collections::HashMap;
use std::ffi::OsStr;

use larder_filesystem::{Directory, Error, FileType, Filesystem, Inode};
use larder_platform::OsStrExt;

/// With more directories in the cache it is crowded.
const MOST_KNOWN: usize = 1024;
const REPLACED: &str = "another directory has taken its place meanwhile";

/// Inodes by their paths.
#[derive(Debug)]
pub(super) struct Names {
    /// Paths start there.
    root: Directory,
    enters_subvolumes: bool,
    directories: HashMap<Vec<u8>, Directory>,
    /// Directories that were in the cache, by subvolume and number.
    before: HashMap<Vec<u8>, (u64, u64)>,
    /// The last inode that was looked up and is no directory.
    last: Option<(Vec<u8>, Inode)>,
}

/// The place of an inode.
#[derive(Debug)]
pub(super) enum InodeByPath<'p> {
    /// It was looked up.
    Known(Inode),
    /// In a directory, under this name.
    In { directory: Directory, name: &'p OsStr, enters_subvolumes: bool },
}

impl InodeByPath<'_> {
    /// The inode, looked up if necessary.
    pub(super) fn inode(&self) -> Result<Inode, Error> {
        match self {
            Self::Known(inode) => Ok(inode.clone()),
            Self::In { directory, name, enters_subvolumes } => {
                enter(directory, name, *enters_subvolumes)
            }
        }
    }
}

impl Names {
    /// Names in the subvolume with this root.
    pub(super) fn in_subvolume(root: Directory) -> Self {
        let (directories, before) = Default::default();
        Self { root, enters_subvolumes: false, directories, before, last: None }
    }

    /// Names below a directory, also in other subvolumes.
    pub(super) fn below(directory: Directory) -> Self {
        Self { enters_subvolumes: true, ..Self::in_subvolume(directory) }
    }

    /// Whether new inodes inherit from their directories. In a subvolume that is received, each
    /// inode gets exactly what its commands say.
    pub(super) fn lets_inherit(&self) -> bool {
        self.enters_subvolumes
    }

    pub(super) fn filesystem(&self) -> &Filesystem {
        self.root.subvolume().filesystem()
    }

    /// The inode at `path`: the root if that is empty.
    pub(super) fn inode(&mut self, path: &[u8]) -> Result<Inode, Error> {
        let place = self.place(path)?;
        let inode = place.inode()?;
        if let InodeByPath::In { .. } = place {
            self.note(path, inode.clone());
        }
        Ok(inode)
    }

    /// The inode at `path`, if that is the last one that was looked up or made.
    pub(super) fn last_at(&self, path: &[u8]) -> Option<Inode> {
        self.last.as_ref().filter(|(last, _)| last == path).map(|(_, inode)| inode.clone())
    }

    /// The place of the inode at `path`.
    pub(super) fn place<'p>(&mut self, path: &'p [u8]) -> Result<InodeByPath<'p>, Error> {
        if path.is_empty() {
            return Ok(InodeByPath::Known(Inode::clone(&self.root)));
        }
        if let Some(inode) = self.last_at(path) {
            return Ok(InodeByPath::Known(inode));
        }
        if let Some(directory) = self.directories.get(path) {
            return Ok(InodeByPath::Known(Inode::clone(directory)));
        }
        if self.before.contains_key(path) {
            let directory = self.directory(path, |_, _| Ok::<_, Error>(()))?;
            return Ok(InodeByPath::Known(directory.into_inode()));
        }
        let (directory, name) = self.parent_and_name(path)?;
        Ok(InodeByPath::In { directory, name, enters_subvolumes: self.enters_subvolumes })
    }

    /// The directory of `path`, and the name in it. The root has none.
    pub(super) fn parent_and_name<'p>(
        &mut self,
        path: &'p [u8],
    ) -> Result<(Directory, &'p OsStr), Error> {
        self.parent_and_name_through(path, |_, _| Ok(()))
    }

    /// The same; `enters` may refuse to look a name up in a directory.
    pub(super) fn parent_and_name_through<'p, E: From<Error>>(
        &mut self,
        path: &'p [u8],
        enters: impl Fn(&Directory, &OsStr) -> Result<(), E>,
    ) -> Result<(Directory, &'p OsStr), E> {
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => {
                Ok((self.directory(&path[..slash], enters)?, OsStr::from_bytes(&path[slash + 1..])))
            }
            None if path.is_empty() => Err(Error::NotPermitted("it is the root").into()),
            None => Ok((self.root.clone(), OsStr::from_bytes(path))),
        }
    }

    /// The directory at `path`, from the nearest known one above it down.
    fn directory<E: From<Error>>(
        &mut self,
        path: &[u8],
        enters: impl Fn(&Directory, &OsStr) -> Result<(), E>,
    ) -> Result<Directory, E> {
        if let Some(known) = self.directories.get(path) {
            return Ok(known.clone());
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends: Vec<usize> = slashes.map(|(at, _)| at).collect();
        ends.push(path.len());
        let known = ends.iter().rposition(|end| self.directories.contains_key(&path[..*end]));
        let mut at = match known {
            Some(known) => self.directories[&path[..ends[known]]].clone(),
            None => self.root.clone(),
        };
        let first = known.map_or(0, |known| known + 1);
        for (number, end) in ends.iter().enumerate().skip(first) {
            let start = if number == 0 { 0 } else { ends[number - 1] + 1 };
            let name = OsStr::from_bytes(&path[start..*end]);
            enters(&at, name)?;
            let found = enter(&at, name, self.enters_subvolumes)?;
            at = found.into_directory()?;
            let id = (at.subvolume().id(), at.number());
            if self.before.get(&path[..*end]).is_some_and(|before| *before != id) {
                return Err(Error::NotPermitted(REPLACED).into());
            }
            self.directories.insert(path[..*end].to_vec(), at.clone());
        }
        Ok(at)
    }

    /// Caches an inode that was just found or made.
    pub(super) fn note(&mut self, path: &[u8], inode: Inode) {
        if inode.file_type() != FileType::Directory {
            self.last = Some((path.to_vec(), inode));
        } else if let Ok(directory) = inode.into_directory() {
            self.directories.insert(path.to_vec(), directory);
        }
    }

    /// Whether the cache should be emptied.
    pub(super) fn are_crowded(&self) -> bool {
        self.directories.len() >= MOST_KNOWN
    }

    /// Empties the cache.
    pub(super) fn forget_all(&mut self) {
        let id = |directory: &Directory| (directory.subvolume().id(), directory.number());
        let known = self.directories.drain().map(|(path, directory)| (path, id(&directory)));
        // Nobody else is in a subvolume that is received.
        self.before.extend(known.filter(|_| self.enters_subvolumes));
    }

    /// Drops a name, and all below it.
    pub(super) fn forget(&mut self, path: &[u8]) {
        let is_within =
            |at: &[u8]| at.strip_prefix(path).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.last.take_if(|(last, _)| is_within(last));
        // A directory that is not known has nothing below it that is.
        if self.directories.contains_key(path) {
            self.directories.retain(|at, _| !is_within(at));
        }
        if self.before.contains_key(path) {
            self.before.retain(|at, _| !is_within(at));
        }
    }
}

/// The inode `name` in a directory.
fn enter(directory: &Directory, name: &OsStr, enters_subvolumes: bool) -> Result<Inode, Error> {
    let inode = directory.child(name)?;
    if !enters_subvolumes && inode.subvolume() != directory.subvolume() {
        return Err(Error::CrossSubvolume);
    }
    Ok(inode)
}
