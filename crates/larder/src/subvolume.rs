//! Subvolumes.

use std::path::{Path, PathBuf};

use larder_filesystem::{Metadata, SubvolumeInfo};

use crate::path;
use crate::{Directory, File, Filesystem, Inode, Result};

/// A subvolume or snapshot: a tree of files. Cloning it is cheap.
///
/// Paths start at its root, with or without a slash; they lead on into nested subvolumes, and `..`
/// does not lead out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subvolume {
    inner: larder_filesystem::Subvolume,
}

impl Subvolume {
    pub(crate) fn new(inner: larder_filesystem::Subvolume) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &larder_filesystem::Subvolume {
        &self.inner
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.inner.id()
    }

    /// The file system that it belongs to.
    pub fn filesystem(&self) -> Filesystem {
        Filesystem::new(self.inner.filesystem().clone())
    }

    /// Its UUID, generations, times and name.
    pub fn info(&self) -> Result<SubvolumeInfo> {
        Ok(self.inner.info()?)
    }

    /// The transaction that created it; 0 for the top level, which always existed. Id and
    /// generation together identify a subvolume: an id alone may have belonged to one that was
    /// deleted before the file system was opened.
    pub fn creation_generation(&self) -> u64 {
        self.inner.creation_generation()
    }

    /// Its path from the top level, without a slash at either end.
    pub fn path(&self) -> Result<PathBuf> {
        self.filesystem().subvolume_path(self.id())
    }

    /// Its root directory.
    pub fn root(&self) -> Result<Directory> {
        self.inode(larder_format::objectid::FIRST_FREE)?.into_directory()
    }

    /// The inode of this number in this subvolume, not in a nested one.
    pub fn inode(&self, number: u64) -> Result<Inode> {
        Ok(Inode::new(self.inner.inode(number)?))
    }

    /// The inode at `path`. A symbolic link at the end is followed.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.walk(path.as_ref(), true)
    }

    /// The inode at `path`. A symbolic link at the end is not followed.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.walk(path.as_ref(), false)
    }

    /// The regular file at `path`.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.resolve(path)?.into_file().map_err(|error| error.about(path))
    }

    /// The directory at `path`.
    pub fn open_directory(&self, path: impl AsRef<Path>) -> Result<Directory> {
        let path = path.as_ref();
        self.resolve(path)?.into_directory().map_err(|error| error.about(path))
    }

    /// The attributes of the inode at `path`. A symbolic link at the end is followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve(path)?.metadata())
    }

    /// The target of the symbolic link at `path`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.lookup(path)?.link_target().map_err(|error| error.about(path))
    }

    fn walk(&self, path: &Path, follow_last: bool) -> Result<Inode> {
        let walk = || {
            let root = self.inner.root()?;
            root.resolve(&root, path::bytes(path), follow_last)
        };
        walk().map(Inode::new).map_err(|error| error.about(path))
    }
}

/// Iterates over all subvolumes of a file system. After an error it goes on with the next subvolume
/// that can be read.
#[derive(Debug)]
pub struct Subvolumes {
    inner: larder_filesystem::Subvolumes,
}

impl Subvolumes {
    pub(crate) fn new(inner: larder_filesystem::Subvolumes) -> Self {
        Self { inner }
    }
}

impl Iterator for Subvolumes {
    type Item = Result<SubvolumeInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.inner.next()?)
    }
}
