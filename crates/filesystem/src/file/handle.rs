//! The handle of a regular file.

use std::ops::Deref;

use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;

/// An inode that is a regular file. Converting costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'i> {
    pub(super) inode: &'i Inode,
}

impl<'i> TryFrom<&'i Inode> for File<'i> {
    type Error = Error;

    /// The inode as a regular file.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` for an inode that is neither a file nor a directory.
    fn try_from(inode: &'i Inode) -> Result<Self> {
        match inode.file_type() {
            FileType::Regular => Ok(Self { inode }),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }
}

impl Deref for File<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        self.inode
    }
}
