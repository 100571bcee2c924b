//! One step from one committed state to the next.
//!
//! - [`TransactionManager`]: opens a file system for writing, joins threads to the running
//!   transaction ([`Handle`]), commits, takes snapshots, deletes trees.
//! - [`space`]: block groups in memory, allocation, promises.
//! - [`refs`]: delayed references. [`extent`]: what becomes of them in the extent tree, and checksums.
//! - [`free_space_tree`], [`chunk`]: the other trees of bookkeeping.
//! - [`Quotas`]: what subvolumes refer to, and their limits.
//! - [`Recovery`]: replaying the log trees that a crash left. [`LogWriter`]: writing some.
//! - [`Items`]: a tree as bookkeeping sees it, so that all of it also runs against an ordered map.
//!
//! # Invariants
//! - What the last durable superblock leads to is never written over.
//! - The extent tree, the free space tree and the block groups of a committed state say exactly what
//!   its trees use, and how often.
//! - An allocation searches no tree. Nothing but the count of a block that snapshots may share is
//!   looked up while a tree block is locked.
//! - Whoever was promised space gets it; no space left is said before anything changes.
//! - After an error in a commit nothing is written any more.
//!
//! `docs/locking.md` has the order in which locks are taken.
#![forbid(unsafe_code)]

pub mod chunk;
mod clock;
mod error;
pub mod extent;
pub mod free_space_tree;
mod items;
mod log;
mod manager;
mod quota;
pub mod refs;
pub mod space;
mod tree_items;

pub use clock::now;
pub use error::{Error, Result};
pub use items::{Items, Look};
pub use log::{FoundLog, LogWriter, Recovery};
pub use manager::{
    Aborted, BackgroundCommits, Cleaning, CommitHook, DataExtent, DataOwner, Exclusive, Handle,
    MakesRoom, NewSnapshot, TransactionManager,
};
pub use quota::{Counted, QuotaLimit, QuotaPromise, Quotas};
pub use tree_items::TreeItems;
