//! The state of trees that change: of all trees together, and of one.
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
