//! What is in log trees: inodes, whole or in part, that were synced since the last commit.

mod replay;

pub(super) use replay::replay;
