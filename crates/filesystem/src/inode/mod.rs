//! Inodes: the items of one file, directory or other inode.

pub(crate) mod attributes;
pub(crate) mod delayed;
pub(crate) mod flags;
pub(crate) mod handle;
pub(crate) mod id;
pub(crate) mod inheritance;
pub(crate) mod inherited;
pub(crate) mod links;
pub(crate) mod live;
pub(crate) mod metadata;
pub(crate) mod new;
pub(crate) mod open;
pub(crate) mod opens;
pub(crate) mod orphan_deletion;
pub(crate) mod orphans;
pub(crate) mod table;
