//! Log trees: what was synced file by file since the last commit.
//!
//! The superblock points at a tree of log trees, one for each subvolume of which something was synced.
//! What stands in them is the business of whoever knows files.
//!
//! # Invariants
//! - Blocks of logs, and data that only a log refers to, are allocated without an extent item. Before
//!   anything else is allocated from what a crash left, they are taken out of the free space, each
//!   address once: a log that refers to the same place twice is refused.
//! - Replaying is one transaction. Until its commit nothing is written, so that a log that cannot be
//!   replayed stays as it is.

mod found;
mod recovery;
mod write;

pub use found::FoundLog;
pub use recovery::Recovery;
pub use write::LogWriter;
pub(crate) use write::Logs;
