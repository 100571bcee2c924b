//! One step from one committed state to the next.
#![forbid(unsafe_code)]

pub mod chunk;
mod error;
pub mod extent;
pub mod free_space_tree;
mod items;
mod manager;
pub mod refs;
pub mod space;
mod tree_items;

pub use error::{Error, Result};
pub use items::Items;
pub use manager::{
    CommitHook, DataExtent, DataOwner, Exclusive, Handle, MakesRoom, NewSnapshot,
    TransactionManager,
};
pub use tree_items::TreeItems;
