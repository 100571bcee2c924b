//! Writing a tree of files from an image to a destination.

use std::path::{Path, PathBuf};

use anyhow::bail;
use larder::{FileType, Inode, NewInode};
use rustix::fs::Mode;

use crate::destination::{Attributes, Destination};
use crate::interrupt;
use crate::progress::Progress;
use crate::source::new_inode;
use crate::tree::{Visited, Visitor};

/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

const ALL_PERMISSIONS: u32 = 0o7777;

/// What a copy keeps besides content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Permissions, minus the umask.
    Permissions,
    /// Modes, owners, times, extended attributes and hard links.
    Everything,
}

impl Keep {
    /// Whether a copy overwrites a file with so many names, as cp does. One that keeps everything
    /// is no further name of other files.
    pub fn overwrites(self, names: u32) -> bool {
        self == Self::Permissions || names == 1
    }

    /// The attributes for creating a copy of an inode with this `mode`. A copy that keeps everything
    /// has the permissions `at_first` until it is complete.
    pub fn new_inode(self, mode: u32, at_first: u32) -> NewInode {
        let file_type = mode & !ALL_PERMISSIONS;
        match self {
            Self::Everything => new_inode(file_type | at_first, 0),
            Self::Permissions => new_inode(file_type | plain_permissions(mode), umask()),
        }
    }
}

/// The permissions of an inode that mkdir(2) or open(2) makes of `mode`: a directory keeps its
/// sticky bit.
fn plain_permissions(mode: u32) -> u32 {
    let is_directory = FileType::from_mode(mode) == Some(FileType::Directory);
    mode & if is_directory { 0o1777 } else { 0o777 }
}

/// Writes the inodes of a walk.
pub struct Extract<'a> {
    destination: &'a mut dyn Destination,
    /// The path of the copy there.
    target: PathBuf,
    keep: Keep,
    buffer: Vec<u8>,
    written_bytes: u64,
    progress: Progress,
}

impl<'a> Extract<'a> {
    /// A copy at `target`, a path in `destination`.
    pub fn new(destination: &'a mut dyn Destination, target: PathBuf, keep: Keep) -> Self {
        Self {
            destination,
            target,
            keep,
            buffer: vec![0; BUFFER_BYTES],
            written_bytes: 0,
            progress: Progress::of_bytes(),
        }
    }

    fn target_of(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.target.clone() } else { self.target.join(path) }
    }

    fn file(&mut self, target: &Path, inode: &Inode, mode: u32) -> anyhow::Result<()> {
        if !self.destination.overwrite_file(target, self.keep)? {
            self.destination.make_file(target, &self.keep.new_inode(mode, 0o600))?;
        }
        let copied = self.content(target, inode);
        if copied.is_err() {
            self.destination.discard(target)?;
        }
        copied
    }

    /// Copies the data of a file; holes stay holes.
    fn content(&mut self, target: &Path, inode: &Inode) -> anyhow::Result<()> {
        let file = inode.clone().into_file()?;
        let mut written_to = 0;
        for range in file.data_ranges()? {
            let mut offset = range.start;
            while offset < range.end {
                interrupt::check()?;
                let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
                let len = file.read_at(&mut self.buffer[..want], offset)?;
                if len == 0 {
                    bail!("the file ends at {offset}, before its size");
                }
                self.destination.write(target, &self.buffer[..len], offset)?;
                offset += len as u64;
                self.written_bytes += len as u64;
                self.progress.set(self.written_bytes);
            }
            written_to = range.end;
        }
        let len_bytes = file.len_bytes();
        if written_to == len_bytes { Ok(()) } else { self.destination.set_len(target, len_bytes) }
    }

    fn finish(&mut self, target: &Path, inode: &Inode) -> anyhow::Result<()> {
        match self.keep {
            Keep::Everything => self.destination.finish(target, attributes_of(inode)?),
            Keep::Permissions => Ok(()),
        }
    }
}

impl Visitor for Extract<'_> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        let new = self.keep.new_inode(node.inode.metadata().mode, 0o700);
        self.destination.make_directory(&self.target_of(node.path), &new)?;
        Ok(true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        let target = self.target_of(node.path);
        if let (Keep::Everything, Some(met_as)) = (self.keep, node.met_as) {
            return self.destination.link(&target, &self.target_of(met_as));
        }
        let metadata = node.inode.metadata();
        match metadata.file_type {
            FileType::Regular => self.file(&target, node.inode, metadata.mode)?,
            FileType::Symlink => {
                let link = node.inode.link_target()?;
                self.destination.make_symlink(&target, link.as_os_str())?;
            }
            _ => {
                let new = self.keep.new_inode(metadata.mode, 0o600);
                let new = NewInode { device: metadata.device, ..new };
                self.destination.make_node(&target, &new)?;
            }
        }
        self.finish(&target, node.inode)
    }

    fn leave(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.finish(&self.target_of(node.path), node.inode)
    }
}

fn attributes_of(inode: &Inode) -> anyhow::Result<Attributes> {
    let xattrs = inode.xattrs().collect::<larder::Result<Vec<_>>>()?;
    Ok(Attributes::of(&inode.metadata(), xattrs))
}

/// The umask. Reading it means setting it: no other way works everywhere.
pub fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
