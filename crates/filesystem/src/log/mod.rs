//! Log trees: inodes, whole or in part, that were fsynced since the last commit.
//!
//! - [`replay`]: from a log that a crash left into its subvolume.
//! - [`sync`]: the calls that make inodes durable. [`plan`]: which other inodes a log must have for
//!   that, and when only a commit will do. [`content`], [`extents`], [`tree_difference`]: the items
//!   of a log. [`logged_inodes`](crate::live::logged_inodes): the inodes that logs have.

pub(crate) mod content;
pub(crate) mod extents;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod sync;
pub(crate) mod tree_difference;
