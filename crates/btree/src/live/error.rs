//! Why a change did not happen.

use larder_format::Key;

use super::space::SpaceError;
use crate::error::TreeError;

/// Why a change did not happen. The tree is sound after any of these errors, and unchanged except
/// where the function says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A block cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The manager of space has no block, or cannot account for its references.
    #[error("tree {tree}: {error}")]
    Space {
        /// The tree that the caller wanted to change.
        tree: u64,
        /// The manager's error.
        error: SpaceError,
    },
    /// An item with this key is there already.
    #[error("tree {tree} has an item {key} already")]
    Exists {
        /// The tree.
        tree: u64,
        /// The key.
        key: Key,
    },
    /// There is no item with this key.
    #[error("tree {tree} has no item {key}")]
    NotFound {
        /// The tree.
        tree: u64,
        /// The key.
        key: Key,
    },
    /// An item does not fit even an empty leaf.
    #[error("tree {tree}: item {key} of {len_bytes} bytes fits no leaf")]
    TooLarge {
        /// The tree.
        tree: u64,
        /// The key.
        key: Key,
        /// Length of its data.
        len_bytes: usize,
    },
    /// Keys that must ascend do not, or a new key does not fit between its neighbours.
    #[error("tree {tree}: key {key} is out of order")]
    OutOfOrder {
        /// The tree.
        tree: u64,
        /// The key.
        key: Key,
    },
}
