//! The attributes of an inode of this system.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use larder_filesystem::Timestamp;
use larder_platform::Pinned;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::destination::Attributes;

/// Room for the names, or for one value: the kernel's maximum.
const XATTR_BYTES: usize = 64 << 10;

/// An inode of this system.
pub(super) enum Original<'o> {
    /// A file or a directory.
    Open(BorrowedFd<'o>),
    /// Any other.
    Pinned(&'o Pinned),
}

impl Original<'_> {
    pub(super) fn attributes(&self, status: &Stat) -> anyhow::Result<Attributes> {
        let is_symlink = FileType::from_raw_mode(status.st_mode) == FileType::Symlink;
        let time =
            |seconds: i64, nanoseconds: u64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        Ok(Attributes {
            permissions: (!is_symlink).then_some(status.st_mode & 0o7777),
            uid: Some(status.st_uid),
            gid: Some(status.st_gid),
            atime: Some(time(status.st_atime, status.st_atime_nsec)),
            mtime: Some(time(status.st_mtime, status.st_mtime_nsec)),
            xattrs: Some(self.xattrs()?),
        })
    }

    fn xattrs(&self) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
        // Most inodes have none, or few.
        let mut few = [0; 256];
        let mut many = Vec::new();
        let names = match self.list_xattrs(&mut few) {
            Ok(len) => &few[..len],
            Err(Errno::NOTSUP) => &[],
            Err(Errno::RANGE) => {
                many.resize(XATTR_BYTES, 0);
                let len = self.list_xattrs(&mut many);
                &many[..len.context("cannot list extended attributes")?]
            }
            Err(error) => return Err(error).context("cannot list extended attributes"),
        };
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names
            .map(|name| {
                let name = OsStr::from_bytes(name);
                let mut value = vec![0; XATTR_BYTES];
                let len = self.get_xattr(name, &mut value)?;
                value.truncate(len);
                Ok((name.to_owned(), value))
            })
            .collect()
    }

    fn list_xattrs(&self, names: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(inode) => rustix::fs::flistxattr(inode, names),
            Self::Pinned(pinned) => rustix::fs::listxattr(pinned.path(), names),
        }
    }

    fn get_xattr(&self, name: &OsStr, value: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(inode) => rustix::fs::fgetxattr(inode, name, value),
            Self::Pinned(pinned) => rustix::fs::getxattr(pinned.path(), name, value),
        }
    }
}
