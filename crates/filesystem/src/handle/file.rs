//! The handle of a regular file.

use std::ops::Deref;

use crate::handle::inode::Inode;

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub(crate) inode: Inode,
}

impl Deref for File {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}
