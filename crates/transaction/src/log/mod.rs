//! Log trees: inodes that were fsynced since the last commit.
//!
//! The superblock points at a tree of log trees, one for each subvolume with fsynced inodes. The
//! crate that knows files decides what they contain.
//!
//! # Invariants
//! - Blocks of logs, and data that only a log refers to, are allocated without an extent item.
//!   After a crash they are taken out of the free space before anything else is allocated, each
//!   address once: a log that refers to one address twice is refused.
//! - Replaying is one transaction. Until its commit nothing is written, so that a log that cannot
//!   be replayed stays as it is.

mod found;
mod recovery;
mod trees;
mod write;

pub use found::FoundLog;
pub use recovery::Recovery;
pub(crate) use trees::Logs;
pub use write::LogWriter;
