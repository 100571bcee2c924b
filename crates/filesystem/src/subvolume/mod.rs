//! Subvolumes: a tree of inodes each, named by directories of others.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod handle;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod path;
pub(crate) mod received;
pub(crate) mod send_guard;
pub(crate) mod snapshot;
