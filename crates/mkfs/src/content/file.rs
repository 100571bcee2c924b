//! Opening and reading the source.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use larder_format::item::FileType;
use larder_platform::{HostTree, OsStringExt, Pinned};
use rustix::fs::{Stat, fstat};
use rustix::io::{Errno, pread};

use super::Context;
use crate::MkfsError;
use crate::source::{Kind, data_ranges};

/// Opens entries.
pub(super) struct Opener<'a> {
    context: Context<'a>,
    /// The whole source, once something was opened.
    tree: Option<HostTree>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(context: Context<'a>) -> Self {
        Self { context, tree: None }
    }

    /// Looks at the node in the source.
    fn look<T>(
        &mut self,
        at: u32,
        look: impl FnOnce(&mut HostTree, &Path) -> io::Result<T>,
    ) -> Result<T, MkfsError> {
        let subvolume = self.context.subvolume;
        let root = subvolume.root_path().unwrap_or(Path::new(""));
        let looked = match &mut self.tree {
            Some(tree) => look(tree, &subvolume.path_inside(at)),
            tree => HostTree::below(root)
                .and_then(|opened| look(tree.insert(opened), &subvolume.path_inside(at))),
        };
        looked.map_err(MkfsError::source(|| subvolume.path(at)))
    }

    /// An entry that is not opened.
    pub(super) fn pin(&mut self, at: u32) -> Result<(Pinned, Stat), MkfsError> {
        let (pinned, status) = self.look(at, HostTree::pinned)?;
        self.check_kind(at, &status)?;
        Ok((pinned, status))
    }

    /// The target of a symbolic link.
    pub(super) fn read_link(&self, at: u32, link: &Pinned) -> Result<Vec<u8>, MkfsError> {
        let target = link.link_target();
        let target = target.map_err(MkfsError::source(|| self.context.subvolume.path(at)))?;
        Ok(target.into_vec())
    }

    /// Opens a directory.
    pub(super) fn open_directory(&mut self, at: u32) -> Result<(OwnedFd, Stat), MkfsError> {
        self.look(at, |tree, path| {
            let opened = tree.directory(path)?.try_clone_to_owned()?;
            let status = fstat(&opened)?;
            Ok((opened, status))
        })
    }

    /// Opens a file.
    pub(super) fn open_file(&mut self, at: u32) -> Result<OpenFile<'a>, MkfsError> {
        let context = self.context;
        let subvolume = context.subvolume;
        let node = subvolume.node(at);
        let (opened, status) = self.look(at, HostTree::file)?;
        let opened = OwnedFd::from(opened);
        let sector_size = context.settings.sector_size as u64;
        if (status.st_size as u64) < node.size {
            return Err(became_shorter(subvolume.path(at)));
        }
        let ranges = data_ranges(opened.as_fd(), node.size, sector_size);
        let ranges = ranges.map_err(MkfsError::source(|| subvolume.path(at)))?;
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
