//! Subvolumes: a tree of inodes each, named by directories of others.

pub(crate) mod by_path;
pub(crate) mod content;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deleted;
pub(crate) mod drop_tree;
pub(crate) mod handle;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod move_tree;
pub(crate) mod pending_snapshots;
pub(crate) mod received;
pub(crate) mod references;
pub(crate) mod relative;
pub(crate) mod renamed;
pub(crate) mod send_guard;
pub(crate) mod send_guards;
pub(crate) mod take_snapshots;
pub(crate) mod uuids;
