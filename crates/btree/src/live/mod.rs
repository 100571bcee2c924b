//! Trees that change.
//!
//! Blocks that are on a device never change and need no lock: a block is copied before its first
//! change in a transaction, and from then on is *live*, behind a reader-writer lock, until it is
//! written. Where to find what:
//!
//! - [`forest`], [`tree`]: all trees, one tree; copying, snapshots. [`space`]: what they ask for.
//! - [`search`]: the way down and its locks. [`intent`], [`reach`]: what a change asks of its leaf and
//!   needs above it. [`finger`]: the way past the root. [`path`]: what is held meanwhile.
//! - [`insert`], [`edit`], [`delete`], [`read`], [`cursor`]: what callers do.
//! - [`split`], [`push`], [`merge`]: room, and what becomes small. [`leaf`], [`node`]: bytes.
//! - [`write_out`]: what a commit writes. [`shape`]: whether a tree is sound.

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
