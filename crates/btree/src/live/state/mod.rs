//! What the trees of a forest have in common, and what the operations on one tree have in common.
//!
//! - [`policy`]: how descents take their locks; in its place `ablation.rs`, with other ways, for
//!   benchmarks.
//! - [`block`]: blocks that only memory has, behind their locks.
//! - [`finger`]: nodes that threads remember.
//! - [`forest`], [`tree`]: the state of all trees, and of one.

pub(crate) mod block;
pub(crate) mod finger;
pub(crate) mod forest;
#[cfg_attr(feature = "ablation", path = "ablation.rs")]
pub(crate) mod policy;
pub(crate) mod tree;
