//! Walking a tree through the kernel, with the rights of this process.
//!
//! # Invariants
//! - No symbolic link is followed, and no other file system entered.
//! - Depth costs neither stack nor descriptors. An entry is visited while its directory is being
//!   read, so that only names of directories take memory.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat};

use super::{DIRECTORY, Gone};
use crate::interrupt::{self, Interrupted};
use crate::message;

/// Directories above the position of the walk that stay open. Those further up are found again
/// from below.
const MOST_OPEN: usize = 64;

/// An action on each inode of a tree. Paths start with the name of the tree's top.
pub trait Visitor {
    /// A directory, before its entries.
    fn enter(&mut self, path: &[u8], directory: BorrowedFd<'_>) -> anyhow::Result<()>;
    /// An inode `name` in a directory that is no directory.
    fn visit(&mut self, path: &[u8], at: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<()>;
    /// A directory, after its entries.
    fn leave(&mut self, path: &[u8]) -> anyhow::Result<()>;
}

/// A directory whose subdirectories are being visited.
struct Frame {
    /// `None` while the walk is far below.
    open: Option<OwnedFd>,
    /// Bytes of its path.
    path_len: usize,
    /// Subdirectories to come.
    directories: Vec<OsString>,
}

struct Walk<'v, V> {
    visitor: &'v mut V,
    /// The path of the innermost directory.
    path: Vec<u8>,
    frames: Vec<Frame>,
    /// The file system that the walk stays in.
    device: u64,
    failures: usize,
}

/// Walks the tree that begins at `name` in `directory`. Errors are reported on standard error, and
/// the walk goes on; returns how many there were. A signal that is watched for ends it.
pub fn walk(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    visitor: &mut impl Visitor,
) -> anyhow::Result<usize> {
    let device = fstat(directory)?.st_dev;
    let (path, frames) = (Vec::new(), Vec::new());
    let mut walk = Walk { visitor, path, frames, device, failures: 0 };
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        walk.visitor.visit(name.as_bytes(), directory, name)?;
        return Ok(0);
    }
    walk.enter(directory, name)?;
    while !walk.frames.is_empty() {
        interrupt::check()?;
        if let Err(error) = walk.step() {
            walk.note(error)?;
        }
    }
    Ok(walk.failures)
}

impl<V: Visitor> Walk<'_, V> {
    /// Reports an error, unless it ends the walk.
    fn note(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        if Interrupted::behind(&error).is_some() || Gone::is_behind(&error) {
            return Err(error);
        }
        eprintln!("ERROR: {}", message(&error));
        self.failures += 1;
        Ok(())
    }

    /// Enters the next subdirectory of the innermost directory, or leaves it.
    fn step(&mut self) -> anyhow::Result<()> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let Some(name) = frame.directories.pop() else { return self.leave() };
        let open = frame.open.as_ref().context("a directory that is closed")?.try_clone()?;
        let entered = self.enter(open.as_fd(), &name);
        entered.with_context(|| self.shown(&name))
    }

    fn enter(&mut self, at: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<()> {
        let open = rustix::fs::openat(at, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        if fstat(&open)?.st_dev != self.device {
            bail!("another file system is mounted there");
        }
        let path_len = self.path.len();
        self.extend(name);
        let entered = self.visitor.enter(&self.path, open.as_fd());
        let read = entered.and_then(|()| self.read(open.as_fd()));
        let (directories, failure) = match read {
            Ok(directories) => (directories, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if let Some(far) = self.frames.len().checked_sub(MOST_OPEN) {
            self.frames[far].open = None;
        }
        self.frames.push(Frame { open: Some(open), path_len, directories });
        failure.map_or(Ok(()), Err)
    }

    /// Visits the entries of a directory. Returns the names of subdirectories.
    fn read(&mut self, directory: BorrowedFd<'_>) -> anyhow::Result<Vec<OsString>> {
        let mut directories = Vec::new();
        for entry in Dir::read_from(directory)? {
            interrupt::check()?;
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            match entry.file_type() {
                _ if name == "." || name == ".." => {}
                FileType::Directory => directories.push(name.to_owned()),
                _ => {
                    let path_len = self.path.len();
                    self.extend(name);
                    let visited = self.visitor.visit(&self.path, directory, name);
                    self.path.truncate(path_len);
                    if let Err(error) = visited {
                        let error = error.context(self.shown(name));
                        self.note(error)?;
                    }
                }
            }
        }
        Ok(directories)
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let left = self.visitor.leave(&self.path);
        let left = left.with_context(|| String::from_utf8_lossy(&self.path).into_owned());
        self.path.truncate(frame.path_len);
        if let (Some(above), Some(open)) = (self.frames.last_mut(), &frame.open)
            && above.open.is_none()
        {
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            above.open = Some(rustix::fs::openat(open, "..", flags, Mode::empty())?);
        }
        left
    }

    fn extend(&mut self, name: &OsStr) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
    }

    fn shown(&self, name: &OsStr) -> String {
        format!("{}/{}", String::from_utf8_lossy(&self.path), name.display())
    }
}
