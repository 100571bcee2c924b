//! The handle of a directory.

use std::ops::Deref;

use crate::error::{Error, Result};
use crate::inode::handle::Inode;

/// An inode that is a directory. Converting costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory<'i> {
    pub(super) inode: &'i Inode,
}

impl<'i> TryFrom<&'i Inode> for Directory<'i> {
    type Error = Error;

    /// The inode as a directory.
    ///
    /// # Errors
    /// `ENOTDIR`.
    fn try_from(inode: &'i Inode) -> Result<Self> {
        inode.expect_directory()?;
        Ok(Self { inode })
    }
}

impl Deref for Directory<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        self.inode
    }
}
