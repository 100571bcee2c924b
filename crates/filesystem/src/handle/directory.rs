//! The handle of a directory.

use std::ops::Deref;

use crate::handle::inode::Inode;

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub(crate) inode: Inode,
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
