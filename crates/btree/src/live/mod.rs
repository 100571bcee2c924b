//! Trees that change.
//!
//! [`Forest`] has all trees of a file system that can change, [`LiveTree`] is one of them. Blocks
//! that are on a device never change and need no lock; a block is copied before its first change in
//! a transaction, and from then on lives behind a reader-writer lock until it is written.

mod block;
mod cursor;
mod delete;
mod edit;
mod error;
mod finger;
mod forest;
mod insert;
mod intent;
mod leaf;
mod merge;
mod node;
mod path;
mod push;
mod reach;
mod read;
mod search;
mod shape;
mod space;
mod split;
mod tree;
mod write_out;

pub use cursor::LiveCursor;
pub use error::ChangeError;
pub use forest::{BlockIdentity, Forest, LockPolicy};
pub use leaf::Keep;
pub use shape::Shape;
pub use space::{BlockRequest, BlockSpace, Copied, SpaceError};
pub use tree::LiveTree;
pub use write_out::WriteSet;
