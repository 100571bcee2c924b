//! From the root to a leaf: the blocks that a descent holds, and what it saw on its way.

#[allow(clippy::module_inception, reason = "the folder is named after its type")]
pub(crate) mod path;
pub(crate) mod trace;
