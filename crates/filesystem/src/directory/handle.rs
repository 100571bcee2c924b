//! The handle of a directory.

use std::ops::Deref;

use crate::error::{Error, Result};
use crate::inode::handle::Inode;

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub(super) inode: Inode,
}

impl TryFrom<Inode> for Directory {
    type Error = Error;

    /// # Errors
    /// `ENOTDIR`.
    fn try_from(inode: Inode) -> Result<Self> {
        inode.expect_directory()?;
        Ok(Self { inode })
    }
}

impl Directory {
    /// The inode as such.
    pub fn into_inode(self) -> Inode {
        self.inode
    }
}

impl Deref for Directory {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}
