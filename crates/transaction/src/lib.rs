//! One step from one committed state to the next.
#![forbid(unsafe_code)]

pub mod chunk;
mod error;
pub mod extent;
pub mod free_space_tree;
mod items;
pub mod refs;
pub mod space;

pub use error::{Error, Result};
pub use items::Items;
