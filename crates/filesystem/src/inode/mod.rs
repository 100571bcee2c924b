//! Inodes: the items of one file, directory or other inode.

pub(crate) mod attributes;
pub(crate) mod flags;
pub(crate) mod inheritance;
pub(crate) mod sync;
