//! Opening and reading the source.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use larder_format::item::FileType;
use rustix::fs::{AtFlags, CWD, OFlags, Stat, fstat, statat};
use rustix::io::{Errno, pread};

use super::Context;
use crate::MkfsError;
use crate::source::{Kind, data_ranges, open_quietly};

/// Opens entries. It keeps the last directory open: entries come directory by directory.
pub(super) struct Opener<'a> {
    context: Context<'a>,
    directory: Option<(u32, OwnedFd)>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(context: Context<'a>) -> Self {
        Self { context, directory: None }
    }

    /// The open directory that holds the node.
    fn directory_of(&mut self, at: u32) -> Result<&OwnedFd, Errno> {
        let subvolume = self.context.subvolume;
        let parent = subvolume.node(at).parent;
        let known = self.directory.take_if(|(node, _)| *node == parent);
        let directory = match known {
            Some((_, directory)) => directory,
            None => open_quietly(CWD, &subvolume.path(parent), OFlags::DIRECTORY)?,
        };
        Ok(&self.directory.insert((parent, directory)).1)
    }

    /// The attributes of an entry that is not opened.
    pub(super) fn status(&mut self, at: u32) -> Result<Stat, MkfsError> {
        let subvolume = self.context.subvolume;
        let name = subvolume.name(subvolume.node(at));
        let directory = self.directory_of(at);
        let status = directory.and_then(|dir| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW));
        let status = status.map_err(MkfsError::source(|| subvolume.path(at)))?;
        self.check_kind(at, &status)?;
        Ok(status)
    }

    /// The target of a symbolic link.
    pub(super) fn read_link(&mut self, at: u32) -> Result<Vec<u8>, MkfsError> {
        let subvolume = self.context.subvolume;
        let name = subvolume.name(subvolume.node(at));
        let directory = self.directory_of(at);
        directory
            .and_then(|dir| rustix::fs::readlinkat(dir, name, Vec::new()))
            .map(std::ffi::CString::into_bytes)
            .map_err(MkfsError::source(|| subvolume.path(at)))
    }

    /// Opens a directory.
    pub(super) fn open_directory(&mut self, at: u32) -> Result<(OwnedFd, Stat), MkfsError> {
        let subvolume = self.context.subvolume;
        let opened = if at == 0 {
            open_quietly(CWD, &subvolume.path(at), OFlags::DIRECTORY)
        } else {
            let name = subvolume.name(subvolume.node(at));
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
            self.directory_of(at).and_then(|dir| open_quietly(dir, name, flags))
        };
        let failed = || MkfsError::source(|| subvolume.path(at));
        let opened = opened.map_err(failed())?;
        let status = fstat(&opened).map_err(failed())?;
        Ok((opened, status))
    }

    /// Opens a file.
    pub(super) fn open_file(&mut self, at: u32) -> Result<OpenFile<'a>, MkfsError> {
        let context = self.context;
        let subvolume = context.subvolume;
        let node = subvolume.node(at);
        let failed = || MkfsError::source(|| subvolume.path(at));
        // If it has become a pipe, opening it must not wait.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let directory = self.directory_of(at);
        let opened = directory.and_then(|dir| open_quietly(dir, subvolume.name(node), flags));
        let opened = opened.map_err(failed())?;
        let status = fstat(&opened).map_err(failed())?;
        self.check_kind(at, &status)?;
        let sector_size = context.settings.sector_size as u64;
        if (status.st_size as u64) < node.size {
            return Err(became_shorter(subvolume.path(at)));
        }
        let ranges = data_ranges(opened.as_fd(), node.size, sector_size);
        let ranges = ranges.map_err(failed())?;
        Ok(OpenFile { context, at, opened, status, size: node.size, ranges })
    }

    fn check_kind(&self, at: u32, status: &Stat) -> Result<(), MkfsError> {
        let subvolume = self.context.subvolume;
        let expected = match subvolume.node(at).kind {
            Kind::File => FileType::Regular,
            Kind::Symlink => FileType::Symlink,
            Kind::Special(file_type) => file_type,
            Kind::Directory | Kind::Subvolume(_) => FileType::Directory,
        };
        if FileType::from_mode(status.st_mode) == Some(expected) {
            return Ok(());
        }
        Err(MkfsError::Changed { path: subvolume.path(at), change: "its type is another one" })
    }
}

fn became_shorter(path: PathBuf) -> MkfsError {
    MkfsError::Changed { path, change: "it became shorter" }
}

/// A file that is being copied.
pub(crate) struct OpenFile<'a> {
    context: Context<'a>,
    pub(super) at: u32,
    pub(super) opened: OwnedFd,
    pub(super) status: Stat,
    /// Bytes to copy.
    pub(super) size: u64,
    /// The ranges that hold data; see [`data_ranges`].
    pub(super) ranges: Vec<Range<u64>>,
}

impl OpenFile<'_> {
    pub(super) fn path(&self) -> PathBuf {
        self.context.subvolume.path(self.at)
    }

    /// Bytes that file extents cover.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Fills `buffer` from `offset` on, with zeros after the file's size.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), MkfsError> {
        let in_file = buffer.len().min(self.size.saturating_sub(offset) as usize);
        let (mut rest, padding) = buffer.split_at_mut(in_file);
        padding.fill(0);
        let mut offset = offset;
        while !rest.is_empty() {
            match pread(&self.opened, &mut *rest, offset) {
                Ok(0) => return Err(became_shorter(self.path())),
                Ok(read) => {
                    rest = &mut rest[read..];
                    offset += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(MkfsError::source(|| self.path())(errno)),
            }
        }
        Ok(())
    }
}
