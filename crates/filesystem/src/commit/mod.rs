//! What a commit does besides that: snapshots, references of subvolumes, dropping their trees.

pub(crate) mod drop_tree;
pub(crate) mod references;
pub(crate) mod take_snapshots;
pub(crate) mod uuids;
