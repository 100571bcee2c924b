//! Errors that name the place.

use std::fmt;

use larder_format::tree_check::TreeCheckError;
use larder_format::{FormatError, Key, Logical};

use crate::expected::Expected;
use crate::store::StoreError;

/// A tree block that cannot be used, and where it hangs.
#[derive(Debug)]
pub struct TreeError {
    /// The tree in which the block was reached.
    pub tree: u64,
    /// The address that the parent, or the tree's root item, points to.
    pub logical: Logical,
    /// The level at which the block was expected.
    pub level: u8,
    /// The first key of the block as the parent has it; `None` for a root.
    pub key: Option<Key>,
    /// The first key after the block and all below it, as far as its parents know: keys from `key`
    /// up to this one are out of reach. `None` at the right edge of the tree.
    pub upper: Option<Key>,
    /// What is wrong.
    pub problem: Box<Problem>,
}

/// What is wrong with a tree block.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The store has no sound copy.
    #[error("{0}")]
    Read(StoreError),
    /// The bytes are not a tree block.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The block has an item or pointer that cannot exist.
    #[error("{0}")]
    Contents(#[source] Box<TreeCheckError>),
    /// A header field differs from the one that the parent expects.
    #[error("{field} is {found} where {expected} was expected")]
    Mismatch {
        /// The field's name.
        field: &'static str,
        /// The value that the parent expects.
        expected: u64,
        /// The value in the block.
        found: u64,
    },
    /// The first key is not the parent's key for this block.
    #[error("the first key is {} where the parent has {expected}", shown(*found))]
    FirstKey {
        /// The parent's key.
        expected: Key,
        /// The block's first key; `None` in an empty leaf.
        found: Option<Key>,
    },
    /// The last key lies beyond the range that the parent leaves to this block.
    #[error("the last key {last} is not below {bound}, where the next block begins")]
    OutOfRange {
        /// The block's last key.
        last: Key,
        /// First key of the next block.
        bound: Key,
    },
}

fn shown(key: Option<Key>) -> String {
    key.map_or_else(|| "absent".into(), |key| key.to_string())
}

impl TreeError {
    pub(crate) fn new(expected: &Expected, problem: impl Into<Problem>) -> Self {
        Self {
            tree: expected.tree,
            logical: expected.logical,
            level: expected.level,
            key: expected.first_key,
            upper: None,
            problem: Box::new(problem.into()),
        }
    }

    pub(crate) fn with_upper(self, upper: Option<Key>) -> Self {
        Self { upper, ..self }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {}, block {} at level {}", self.tree, self.logical, self.level)?;
        if let Some(key) = self.key {
            write!(f, " with first key {key}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.problem {
            Problem::Read(error) => Some(&**error),
            Problem::Format(error) => Some(error),
            Problem::Contents(error) => Some(&**error),
            _ => None,
        }
    }
}
