//! Walking a tree of files, as `ls -R`, `cp` and `tar` do.
//!
//! The tree may come from a hostile image: names that would lead elsewhere and directories inside
//! themselves are errors, and depth costs no stack.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec;

use anyhow::bail;
use larder_filesystem::{Directory, Entry, FileType, Inode};

/// An inode in the tree and its path.
#[derive(Debug)]
pub struct Visited<'a> {
    /// Its path from the start of the walk; empty for the start itself.
    pub path: &'a Path,
    /// The inode.
    pub inode: &'a Inode,
    /// The path under which the walk met the same inode before.
    pub met_as: Option<&'a Path>,
}

/// An action on each inode of a tree.
pub trait Visitor {
    /// A directory, before its entries. Returns false to skip them.
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool>;
    /// An inode that is no directory.
    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()>;
    /// A directory, after its entries.
    fn leave(&mut self, node: &Visited<'_>) -> anyhow::Result<()>;
}

/// A directory whose entries are being visited.
struct Frame {
    directory: Directory,
    path: PathBuf,
    entries: vec::IntoIter<Entry>,
}

/// Subvolume and number of an inode.
type InodeId = (u64, u64);

/// A walk in progress.
struct Walk<'v, V> {
    visitor: &'v mut V,
    /// The directories from the start to the position of the walk.
    frames: Vec<Frame>,
    /// The same directories, to detect one that is inside itself.
    ancestors: HashSet<InodeId>,
    /// All directories that the walk met, if the reference that names a directory may be lost: then
    /// several names may lead to one.
    entered: Option<HashSet<InodeId>>,
    /// Inodes with several names that the walk met, and where.
    met: HashMap<InodeId, PathBuf>,
}

/// Walks the tree at `start`, the entries of a directory in the order of their names.
///
/// `note` gets what the visitor returned for each inode, and errors of reading, with the path of the
/// inode from the start; a directory is noted once it is entered, and once it is left. The walk
/// goes on unless `note` fails.
///
/// # Errors
/// Those of `note`.
pub fn walk<V: Visitor>(
    start: &Inode,
    visitor: &mut V,
    mut note: impl FnMut(&mut V, &Path, anyhow::Result<()>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let rescue = start.subvolume().filesystem().volume().rescue();
    let entered = rescue.ignore_bad_roots.then(HashSet::new);
    let (frames, ancestors, met) = Default::default();
    let mut walk = Walk { visitor, frames, ancestors, entered, met };
    let started = walk.node(PathBuf::new(), start.clone());
    note(walk.visitor, Path::new(""), started)?;
    while let Some((path, result)) = walk.step() {
        note(walk.visitor, &path, result)?;
    }
    Ok(())
}

impl<V: Visitor> Walk<'_, V> {
    /// Goes to the next entry of the innermost directory, or leaves it; `None` at the end.
    fn step(&mut self) -> Option<(PathBuf, anyhow::Result<()>)> {
        let frame = self.frames.last_mut()?;
        if let Some(entry) = frame.entries.next() {
            let path = frame.path.join(entry.name());
            let result = self.entry(path.clone(), &entry);
            return Some((path, result));
        }
        let Frame { directory, path, .. } = self.frames.pop()?;
        self.ancestors.remove(&id(&directory));
        let left = self.visitor.leave(&Visited { path: &path, inode: &directory, met_as: None });
        Some((path, left))
    }

    fn entry(&mut self, path: PathBuf, entry: &Entry) -> anyhow::Result<()> {
        check_name(entry.name())?;
        let inode = entry.open()?;
        self.node(path, inode)
    }

    fn node(&mut self, path: PathBuf, inode: Inode) -> anyhow::Result<()> {
        if inode.file_type() == FileType::Directory {
            return self.directory(path, inode.into_directory()?);
        }
        let has_names = inode.metadata().nlink > 1;
        let met_as = self.met.get(&id(&inode)).filter(|_| has_names);
        let node = Visited { path: &path, inode: &inode, met_as: met_as.map(PathBuf::as_path) };
        let is_new = met_as.is_none();
        self.visitor.visit(&node)?;
        if has_names && is_new {
            self.met.insert(id(&inode), path);
        }
        Ok(())
    }

    fn directory(&mut self, path: PathBuf, directory: Directory) -> anyhow::Result<()> {
        if self.ancestors.contains(&id(&directory)) {
            bail!("the directory is inside itself");
        }
        let is_known = |entered: &mut HashSet<InodeId>| {
            !directory.is_empty_subvolume() && !entered.insert(id(&directory))
        };
        if self.entered.as_mut().is_some_and(is_known) {
            bail!("the directory was met before, under another name");
        }
        if !self.visitor.enter(&Visited { path: &path, inode: &directory, met_as: None })? {
            return Ok(());
        }
        self.ancestors.insert(id(&directory));
        let mut entries = Vec::new();
        let mut unreadable = None;
        for entry in directory.entries()? {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => unreadable = Some(error),
            }
        }
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        self.frames.push(Frame { directory, path, entries: entries.into_iter() });
        unreadable.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn id(inode: &Inode) -> InodeId {
    (inode.subvolume().id(), inode.number())
}

/// Refuses names that no directory can have and that would lead out of a copy of it.
pub fn check_name(name: &OsStr) -> anyhow::Result<()> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || matches!(bytes, b"." | b"..") || bytes.contains(&b'/') {
        bail!("the name \"{}\" cannot be", bytes.escape_ascii());
    }
    Ok(())
}
