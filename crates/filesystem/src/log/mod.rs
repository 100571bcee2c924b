//! What is in log trees: inodes, whole or in part, that were synced since the last commit.
//!
//! - [`replay`]: from a log that a crash left into its subvolume.
//! - [`sync`]: who asks for what to be durable; [`plan`]: what else must be logged for that, and when only a
//!   commit will do; [`content`], [`extents`], [`tree_difference`]: what stands in a log. [`logged_inodes`]: which inodes logs have.

pub(crate) mod content;
pub(crate) mod extents;
pub(crate) mod logged_inodes;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod sync;
pub(crate) mod sync_queue;
pub(crate) mod tree_difference;
