//! Proof that inodes may be changed now: the locks and the handle of a change of files.

pub(crate) mod changeable;
pub(crate) mod file_change;
pub(crate) mod locks;
