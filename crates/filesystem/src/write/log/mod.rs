//! What is in log trees: inodes, whole or in part, that were synced since the last commit.
//!
//! - [`replay`]: from a log that a crash left into its subvolume.
//! - [`sync`]: who asks for what to be durable; [`cover`]: what else must be logged for that, and when only a
//!   commit will do; [`content`], [`extents`], [`difference`]: what stands in a log. [`members`]: which inodes logs have.

mod content;
mod cover;
mod difference;
mod extents;
mod members;
mod replay;
mod sync;

pub(super) use members::Members;
pub(super) use replay::replay;
pub(super) use sync::Syncs;
