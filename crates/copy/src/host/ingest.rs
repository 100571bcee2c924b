//! Copying a tree of files of this machine.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use larder_filesystem::NewInode;
use larder_platform::{HostTree, Pinned};
use rustix::fs::{FileType, SeekFrom, Stat, copy_file_range, fstat};
use rustix::io::Errno;

use super::original::Original;
use crate::course::Course;
use crate::destination::{Attributes, Destination};
use crate::keep::Keep;

/// Bytes of a file that are read at a time.
pub const BUFFER_BYTES: usize = 1 << 20;
/// In files up to this length, looking for data takes longer than copying a few zeros.
const SHORT_BYTES: u64 = 64 << 10;
/// The most bytes that the kernel copies in one call.
const MOST_IN_KERNEL: usize = 1 << 30;
/// The unit in which the kernel counts the space of a file.
const BLOCK_BYTES: u64 = 512;

/// Copies to one destination.
pub struct Ingest<'a> {
    destination: &'a mut dyn Destination,
    keep: Keep,
    /// Files with several names that were copied, by device and inode number of the original.
    met: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
    course: Course<'a>,
}

impl<'a> Ingest<'a> {
    /// Copies to `destination`.
    pub fn new(destination: &'a mut dyn Destination, keep: Keep, course: Course<'a>) -> Self {
        Self { destination, keep, met: HashMap::new(), buffer: Vec::new(), course }
    }

    /// Where copies go.
    pub fn destination(&mut self) -> &mut dyn Destination {
        self.destination
    }

    /// What copies keep.
    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// How far the copy is.
    pub fn course(&mut self) -> &mut Course<'a> {
        &mut self.course
    }

    /// How far the copy is.
    pub fn into_course(self) -> Course<'a> {
        self.course
    }

    /// Copies the tree at `source` to `target`.
    ///
    /// # Errors
    /// The copy ends before it is complete.
    pub fn copy(&mut self, source: &Path, target: &Path) -> anyhow::Result<()> {
        match HostTree::containing(source) {
            Ok((tree, start)) => self.copy_from(tree, &start, source, target),
            Err(error) => self.note(source, target, Err(error.into())),
        }
    }

    /// Copies what is at `start` in `tree` and below. The user calls it `source`.
    fn copy_from(
        &mut self,
        mut tree: HostTree,
        start: &Path,
        source: &Path,
        target: &Path,
    ) -> anyhow::Result<()> {
        let shown = |path: &Path| below(source, path.strip_prefix(start).unwrap_or(path));
        // Directories are finished last, since creating their entries changes their times.
        let mut directories = Vec::new();
        let mut waiting = vec![(start.to_owned(), target.to_owned())];
        while let Some((path, target)) = waiting.pop() {
            self.course.check()?;
            let copied = self.one(&mut tree, &path, &target, &mut waiting, &mut directories);
            self.note(&shown(&path), &target, copied)?;
        }
        for (path, target, status) in directories.into_iter().rev() {
            let finished = self.finish_directory(&mut tree, &path, &target, &status);
            self.note(&shown(&path), &target, finished)?;
        }
        Ok(())
    }

    /// Notes how the copy of `source` to `target` went.
    ///
    /// # Errors
    /// The copy ends.
    pub fn note(
        &mut self,
        source: &Path,
        target: &Path,
        result: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let target = self.destination.shown(target);
        self.course.note(source, &target, result)
    }

    fn one(
        &mut self,
        tree: &mut HostTree,
        path: &Path,
        target: &Path,
        waiting: &mut Vec<(PathBuf, PathBuf)>,
        directories: &mut Vec<(PathBuf, PathBuf, Stat)>,
    ) -> anyhow::Result<()> {
        match FileType::from_raw_mode(tree.status(path)?.st_mode) {
            FileType::Directory => {
                let status = fstat(tree.directory(path)?)?;
                let new = self.keep.new_inode(status.st_mode, 0o700);
                self.destination.make_directory(target, &new)?;
                let mut names = tree.names(path)?;
                // In the order of names: the last one waiting comes first.
                names.sort_by(|a, b| b.cmp(a));
                waiting.extend(names.iter().map(|name| (path.join(name), target.join(name))));
                if self.keep == Keep::Everything {
                    directories.push((path.to_owned(), target.to_owned(), status));
                }
            }
            FileType::RegularFile => {
                let (file, status) = tree.file(path)?;
                if !self.link(target, &status)? {
                    self.file(&file, target, &status)?;
                    self.finish(&Original::Open(file.as_fd()), target, &status)?;
                    self.remember(target, &status);
                }
            }
            _ => {
                let (pinned, status) = tree.pinned(path)?;
                if !self.link(target, &status)? {
                    self.node(&pinned, target, &status)?;
                    self.finish(&Original::Pinned(&pinned), target, &status)?;
                    self.remember(target, &status);
                }
            }
        }
        self.course.count();
        Ok(())
    }

    /// Gives the copy of an inode that was copied under another name this name too. Returns whether
    /// there is one.
    fn link(&mut self, target: &Path, status: &Stat) -> anyhow::Result<bool> {
        let met_as = self.met.get(&(status.st_dev, status.st_ino));
        let Some(met_as) = met_as.filter(|_| self.has_names(status)) else { return Ok(false) };
        self.destination.link(target, met_as)?;
        Ok(true)
    }

    /// Remembers the copy of an inode, which may have other names.
    fn remember(&mut self, target: &Path, status: &Stat) {
        if self.has_names(status) {
            self.met.insert((status.st_dev, status.st_ino), target.to_owned());
        }
    }

    fn has_names(&self, status: &Stat) -> bool {
        self.keep == Keep::Everything && status.st_nlink > 1
    }

    /// Copies an inode that is neither a directory nor a file.
    fn node(&mut self, pinned: &Pinned, target: &Path, status: &Stat) -> anyhow::Result<()> {
        let device = match FileType::from_raw_mode(status.st_mode) {
            FileType::Symlink => {
                return self.destination.make_symlink(target, &pinned.link_target()?);
            }
            FileType::BlockDevice | FileType::CharacterDevice => {
                (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev))
            }
            FileType::Directory | FileType::RegularFile => bail!(CHANGED),
            _ => (0, 0),
        };
        let new = NewInode { device, ..self.keep.new_inode(status.st_mode, 0o600) };
        self.destination.make_node(target, &new)
    }

    /// Makes a file, or opens the one that is there, and copies the content.
    fn file(&mut self, from: &File, target: &Path, status: &Stat) -> anyhow::Result<()> {
        if !self.destination.overwrite_file(target, self.keep)? {
            self.destination.make_file(target, &self.keep.new_inode(status.st_mode, 0o600))?;
        }
        self.content_of(from, target, status)
    }

    /// Copies the content of a file. If one of this system is overwritten, the kernel can do that,
    /// and share it.
    ///
    /// # Errors
    /// Those of reading and writing; the copy is stopped.
    pub fn content_of(&mut self, from: &File, target: &Path, status: &Stat) -> anyhow::Result<()> {
        if let Some(to) = self.destination.host_file()
            && copy_in_kernel(from, to, &mut self.course)?
        {
            return Ok(());
        }
        self.content(from, target, status)
    }

    /// Copies the data of a file; holes and preallocated space become holes, except in short files.
    fn content(&mut self, from: &File, target: &Path, status: &Stat) -> anyhow::Result<()> {
        let len_bytes = status.st_size as u64;
        let has_space_for_all = status.st_blocks as u64 * BLOCK_BYTES >= len_bytes;
        if has_space_for_all && len_bytes <= SHORT_BYTES {
            return self.range(from, target, 0..len_bytes);
        }
        let mut written_to = 0;
        while let Some(start) = seek(from, SeekFrom::Data(written_to))? {
            let end = seek(from, SeekFrom::Hole(start))?.unwrap_or(len_bytes);
            self.range(from, target, start..end)?;
            written_to = end;
        }
        if written_to != len_bytes {
            self.destination.set_len(target, len_bytes)?;
        }
        Ok(())
    }

    /// Copies a range of the data of a file.
    fn range(&mut self, from: &File, target: &Path, range: Range<u64>) -> anyhow::Result<()> {
        self.buffer.resize(BUFFER_BYTES, 0);
        let mut offset = range.start;
        while offset < range.end {
            let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
            let len = from.read_at(&mut self.buffer[..want], offset)?;
            if len == 0 {
                bail!("it became shorter while it was read");
            }
            self.destination.write(target, &self.buffer[..len], offset)?;
            offset += len as u64;
            self.course.advance(len as u64)?;
        }
        Ok(())
    }

    fn finish(
        &mut self,
        original: &Original<'_>,
        target: &Path,
        status: &Stat,
    ) -> anyhow::Result<()> {
        if self.keep != Keep::Everything {
            return Ok(());
        }
        self.give(target, original.attributes(status)?)
    }

    /// Gives a copy its attributes, as far as its place allows.
    ///
    /// # Errors
    /// Those of setting them; the copy is stopped.
    pub fn give(&mut self, target: &Path, attributes: Attributes) -> anyhow::Result<()> {
        self.course.finish(self.destination, target, attributes)
    }

    /// Gives the copy of a directory its attributes, once its entries are copied.
    fn finish_directory(
        &mut self,
        tree: &mut HostTree,
        path: &Path,
        target: &Path,
        before: &Stat,
    ) -> anyhow::Result<()> {
        let directory = tree.directory(path)?;
        let now = fstat(directory)?;
        ensure!((now.st_dev, now.st_ino) == (before.st_dev, before.st_ino), CHANGED);
        self.finish(&Original::Open(directory), target, before)
    }
}

/// What happened to a source that is not copied for it.
const CHANGED: &str = "another kind of inode took its place meanwhile";

/// The path `path` from `top`, which joining an empty path would end with a slash.
pub fn below(top: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { top.to_owned() } else { top.join(path) }
}

/// Makes the kernel copy the content of a file, shared where it can be. Returns whether the kernel
/// can; if not, nothing is copied.
fn copy_in_kernel(from: &File, to: &File, course: &mut Course<'_>) -> anyhow::Result<bool> {
    let (mut read_to, mut written_to) = (0, 0);
    loop {
        match copy_file_range(from, Some(&mut read_to), to, Some(&mut written_to), MOST_IN_KERNEL) {
            // Some file systems claim to be able to and copy nothing.
            Ok(0) | Err(_) if read_to == 0 => return Ok(false),
            Ok(0) => return Ok(true),
            Ok(len) => course.advance(len as u64)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Seeks data or a hole; `None` if there are no more.
fn seek(file: &File, to: SeekFrom) -> anyhow::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
