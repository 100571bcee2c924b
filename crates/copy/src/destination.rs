//! Where a copy goes.
//!
//! # Invariants
//! - Nothing is made or changed through a symbolic link, except that a file in an image is
//!   overwritten through one, as cp does.
//! - A new inode replaces a file of its name. A directory stays if there is one.
//! - A file that is overwritten keeps its inode, and with it its other names, owner, permissions,
//!   ACL and extended attributes.

use std::ffi::{OsStr, OsString};
use std::fs::File as HostFile;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::{error, fmt, io};

use anyhow::bail;
use larder_filesystem::{FileType, Metadata, NewInode, Timestamp, Xattr};
use larder_stream::Original;

use crate::keep::Keep;

/// The extended attribute that holds an ACL.
pub const ACCESS_ACL: &str = "system.posix_acl_access";
/// The extended attribute of a directory with the ACL of what is made in it.
pub const DEFAULT_ACL: &str = "system.posix_acl_default";
/// The records of tar archives that have these as text.
pub const ACL_RECORDS: [(&str, &str); 2] =
    [(ACCESS_ACL, "SCHILY.acl.access"), (DEFAULT_ACL, "SCHILY.acl.default")];

/// The attributes of an inode that was copied completely. What is `None` stays as it is.
#[derive(Debug, Default)]
pub struct Attributes {
    /// Not of symbolic links.
    pub permissions: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The time of last access.
    pub atime: Option<Timestamp>,
    /// The time of the last change of the content.
    pub mtime: Option<Timestamp>,
    /// All extended attributes: ACLs that the copy inherited and that are not among these go.
    pub xattrs: Option<Vec<(OsString, Vec<u8>)>>,
}

impl Attributes {
    /// Those of an original.
    pub fn of(metadata: &Metadata, xattrs: Vec<Xattr>) -> Self {
        let is_symlink = metadata.file_type == FileType::Symlink;
        Self {
            permissions: (!is_symlink).then_some(metadata.mode & 0o7777),
            uid: Some(metadata.uid),
            gid: Some(metadata.gid),
            atime: Some(metadata.atime),
            mtime: Some(metadata.mtime),
            xattrs: Some(xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect()),
        }
    }
}

/// Names of extended attributes that a copy does not have.
pub type NotKept = Vec<OsString>;

/// The destination takes nothing more, for this reason: the copy ends.
#[derive(Debug)]
pub struct Gone(pub io::Error);

impl Gone {
    /// Whether `error` is because of that.
    pub fn is_behind(error: &anyhow::Error) -> bool {
        error.chain().any(<dyn error::Error + 'static>::is::<Self>)
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl error::Error for Gone {}

/// A place for copies. Calls about one file follow each other: it is made, written and finished
/// before the next one.
pub trait Destination {
    /// Makes a directory unless it is one.
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()>;
    /// Whether `path` is a directory, and no link to one.
    fn is_directory(&mut self, path: &Path) -> bool;
    /// The name of `path` as users write it.
    fn shown(&self, path: &Path) -> PathBuf;
    /// Opens the file at `path` if there is one that a copy overwrites, and empties it; `keep` says
    /// what the copy gets. It counts as made last then. Returns whether that is so; otherwise the
    /// copy is a new file.
    fn overwrite_file(&mut self, path: &Path, keep: Keep) -> anyhow::Result<bool>;
    /// The file that is overwritten, if it is a file of this system.
    fn host_file(&self) -> Option<&HostFile> {
        None
    }
    /// Makes an empty file.
    fn make_file(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()>;
    /// Writes to the file that was made last.
    fn write(&mut self, path: &Path, data: &[u8], offset: u64) -> anyhow::Result<()>;
    /// Sets the length of the file that was made last.
    fn set_len(&mut self, path: &Path, len_bytes: u64) -> anyhow::Result<()>;
    /// The directory in which paths start, by subvolume and number, if files can share data with
    /// those in the file system of `inode`.
    fn start_beside(&mut self, _inode: BorrowedFd<'_>) -> Option<(u64, u64)> {
        None
    }
    /// Gives the file that was made last the content of `original`, and shares it.
    fn share(&mut self, _path: &Path, _original: Original) -> anyhow::Result<()> {
        bail!("data of this file cannot be shared")
    }
    /// Removes the file that was made last, because its content cannot be copied. One that was
    /// overwritten stays: it has other names, and an owner.
    fn discard(&mut self, path: &Path) -> anyhow::Result<()>;
    /// Makes a device, a pipe or a socket.
    fn make_node(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()>;
    /// Makes a symbolic link.
    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()>;
    /// Gives `original` a further name.
    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()>;
    /// Sets the attributes of an inode that was made or found. Returns the extended attributes that
    /// this place does not let it have.
    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<NotKept>;
}
