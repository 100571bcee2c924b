//! One tree, as its callers see it.
//!
//! - [`live_tree`]: the tree, its root and its snapshots.
//! - `read`, [`cursor`]: reading. `insert`, `edit`, `delete`: changing.
//! - [`shape`]: whether the tree is sound.

pub(crate) mod cursor;
mod delete;
mod edit;
mod insert;
pub(crate) mod live_tree;
mod read;
pub(crate) mod shape;
