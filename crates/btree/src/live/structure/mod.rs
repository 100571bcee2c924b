//! Changes to the shape of a tree, made at the end of a path that holds all blocks that they need.
//!
//! - [`split`], `push`: room for new bytes, as a [`plan`] describes them.
//! - [`shrink`], [`merge`]: blocks that become empty or small.
//! - `root`: a tree that grows or loses a level.

pub(crate) mod merge;
pub(crate) mod plan;
mod push;
mod root;
pub(crate) mod shrink;
pub(crate) mod split;
