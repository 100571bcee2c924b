//! Walking a tree of files, as `ls -R`, `cp` and `tar` do.
//!
//! The tree may come from a hostile image: names that would lead elsewhere and directories inside
//! themselves are errors, and depth costs no stack.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec;

use anyhow::{Context, bail};
use larder::{Directory, Entry, FileType, Inode};

use crate::interrupt::{self, Interrupted};
use crate::progress::Progress;
use crate::{is_broken_pipe, message};

/// An inode in the tree and its path.
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

/// Does one thing with every inode, with a directory before its entries, and shows the progress.
pub struct Each<F> {
    act: F,
    progress: Progress,
}

impl<F: FnMut(&Visited<'_>) -> anyhow::Result<()>> Each<F> {
    pub fn new(act: F) -> Self {
        Self { act, progress: Progress::of_files() }
    }
}

impl<F: FnMut(&Visited<'_>) -> anyhow::Result<()>> Visitor for Each<F> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        self.visit(node).map(|()| true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.progress.add(1);
        (self.act)(node)
    }

    fn leave(&mut self, _: &Visited<'_>) -> anyhow::Result<()> {
        Ok(())
    }
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
    /// Inodes with several names that the walk met, and where.
    met: HashMap<InodeId, PathBuf>,
}

/// Walks the tree at `start`, the entries of a directory in the order of their names.
///
/// Errors are reported on standard error, and the walk goes on. Returns how many there were.
/// Writing to a pipe without a reader ends the walk, and so does a signal that is
/// [watched](interrupt::watch) for.
pub fn walk(start: &Inode, visitor: &mut impl Visitor) -> anyhow::Result<usize> {
    let mut walk =
        Walk { visitor, frames: Vec::new(), ancestors: HashSet::new(), met: HashMap::new() };
    walk.node(PathBuf::new(), start.clone())?;
    let mut failures = 0;
    while !walk.frames.is_empty() {
        interrupt::check()?;
        if let Err(error) = walk.step() {
            if let Some(interrupted) = Interrupted::behind(&error) {
                return Err(interrupted.clone().into());
            }
            if is_broken_pipe(&error) {
                return Err(error);
            }
            eprintln!("ERROR: {}", message(&error));
            failures += 1;
        }
    }
    Ok(failures)
}

impl<V: Visitor> Walk<'_, V> {
    /// Goes to the next entry of the innermost directory, or leaves it.
    fn step(&mut self) -> anyhow::Result<()> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let Some(entry) = frame.entries.next() else {
            let frame = self.frames.pop().expect("it is the last one");
            self.ancestors.remove(&id(&frame.directory));
            let node = Visited { path: &frame.path, inode: &frame.directory, met_as: None };
            return self.visitor.leave(&node).with_context(|| shown(&frame.path));
        };
        let path = frame.path.join(entry.name());
        let named = || shown(&path);
        check_name(entry.name()).with_context(named)?;
        let inode = entry.open().with_context(named)?;
        self.node(path.clone(), inode).with_context(named)
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

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "/".into() } else { path.display().to_string() }
}
