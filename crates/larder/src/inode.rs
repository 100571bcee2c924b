//! Inodes of any type.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use larder_filesystem::{FileType, Metadata};

use crate::path;
use crate::xattr::{Xattrs, name_bytes};
use crate::{Directory, Error, File, Result, Subvolume};

/// A file, directory, symbolic link, device node, pipe or socket. Cloning it is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    inner: larder_filesystem::Inode,
}

/// A name of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Inode number of the directory that has the name.
    pub parent: u64,
    /// Index of the name in the directory.
    pub index: u64,
    /// The name.
    pub name: OsString,
}

impl Inode {
    pub(crate) fn new(inner: larder_filesystem::Inode) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &larder_filesystem::Inode {
        &self.inner
    }

    /// Its number, unique within the subvolume.
    pub fn number(&self) -> u64 {
        self.inner.number()
    }

    /// The subvolume that it belongs to.
    pub fn subvolume(&self) -> Subvolume {
        Subvolume::new(self.inner.subvolume().clone())
    }

    /// Id of the subvolume that it belongs to.
    pub fn subvolume_id(&self) -> u64 {
        self.inner.subvolume().id()
    }

    /// Its type.
    pub fn file_type(&self) -> FileType {
        self.inner.file_type()
    }

    /// Whether it is the root directory of a subvolume.
    pub fn is_subvolume_root(&self) -> bool {
        self.inner.is_subvolume_root()
    }

    /// Whether it is an empty directory that stands for a subvolume which is not there: a snapshot
    /// shows it where a subvolume was nested in its origin. It is on no disk and has number 2.
    pub fn is_empty_subvolume(&self) -> bool {
        self.inner.is_empty_subvolume()
    }

    /// Its attributes.
    pub fn metadata(&self) -> Metadata {
        self.inner.metadata()
    }

    /// Bytes of dirty data for which the file has no space yet, in whole sectors. For `st_blocks`,
    /// add them to [`allocated_bytes`](Metadata::allocated_bytes).
    pub fn unplaced_bytes(&self) -> Result<u64> {
        Ok(self.inner.unplaced_bytes()?)
    }

    /// Its extended attributes, including POSIX ACLs and btrfs's properties.
    pub fn xattrs(&self) -> Xattrs {
        Xattrs::new(self.inner.xattrs())
    }

    /// The value of an extended attribute, whose name includes its namespace.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        Ok(self.inner.xattr(name_bytes(name.as_ref()))?)
    }

    /// The target of the symbolic link.
    pub fn link_target(&self) -> Result<PathBuf> {
        Ok(path::owned(self.inner.link_target()?))
    }

    /// All its names. The root of a subvolume has one without a meaning.
    pub fn links(&self) -> Result<Vec<Link>> {
        Ok(self.inner.links()?.into_iter().map(Link::from).collect())
    }

    /// All its paths from the root of its subvolume, without a slash at either end.
    pub fn paths(&self) -> Result<Vec<PathBuf>> {
        Ok(self.inner.paths()?.into_iter().map(path::owned).collect())
    }

    /// The inode as a regular file.
    pub fn into_file(self) -> Result<File> {
        match self.file_type() {
            FileType::Regular => Ok(File::new(self)),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    /// The inode as a directory.
    pub fn into_directory(self) -> Result<Directory> {
        match self.file_type() {
            FileType::Directory => Ok(Directory::new(self)),
            _ => Err(Error::NotADirectory),
        }
    }

    /// The subvolume whose root the inode is.
    pub fn into_subvolume(self) -> Result<Subvolume> {
        if self.is_subvolume_root() { Ok(self.subvolume()) } else { Err(Error::NotASubvolume) }
    }
}

impl From<larder_filesystem::Link> for Link {
    fn from(link: larder_filesystem::Link) -> Self {
        Self { parent: link.parent, index: link.index, name: path::owned_name(link.name) }
    }
}
