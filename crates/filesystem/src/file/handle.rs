//! The handle of a regular file.

use std::ops::Deref;

use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub(super) inode: Inode,
}

impl TryFrom<Inode> for File {
    type Error = Error;

    /// # Errors
    /// `EISDIR`, `EINVAL` for an inode that is neither a file nor a directory.
    fn try_from(inode: Inode) -> Result<Self> {
        match inode.file_type() {
            FileType::Regular => Ok(Self { inode }),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }
}

impl Deref for File {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}
