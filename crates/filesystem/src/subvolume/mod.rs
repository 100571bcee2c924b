//! Subvolumes: a tree of inodes each, named by directories of others.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod move_tree;
pub(crate) mod received;
pub(crate) mod send_guard;
