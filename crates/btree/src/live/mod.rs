//! Trees that change.
//!
//! A block on a device never changes and needs no lock. A thread copies such a block before its
//! first change in a transaction. The copy is *live*: it has a reader-writer lock until it is
//! written.
//!
//! Each layer uses those before it only:
//!
//! - [`space`], [`error`]: the interface to the manager of space, and why a change does not
//!   happen.
//! - [`bytes`]: changing the bytes of one block.
//! - [`state`]: blocks and their locks, the state of all trees and of one.
//! - [`path`]: the blocks that a thread holds on its way to a leaf.
//! - [`structure`]: splits, merges, a new root.
//! - [`search`]: the way down and its locks.
//! - [`tree`]: the operations that callers see.
//! - [`write_set`]: the blocks that a commit writes. [`forest`]: all trees. [`relocated`]: blocks
//!   that move.

mod bytes;
mod error;
mod forest;
mod path;
mod relocated;
mod search;
mod space;
mod state;
mod structure;
mod tree;
mod write_set;

pub use bytes::leaf::Keep;
pub use error::ChangeError;
pub use forest::Forest;
pub use relocated::Repointing;
pub use space::{BlockRequest, BlockSpace, Copied, SpaceError};
pub use state::forest::BlockIdentity;
#[cfg(feature = "ablation")]
pub use state::policy::LockPolicy;
pub use tree::cursor::LiveCursor;
pub use tree::live_tree::LiveTree;
pub use tree::shape::Shape;
pub use write_set::WriteSet;
