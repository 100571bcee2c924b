//! One step from one committed state to the next.
//!
//! - [`TransactionManager`]: opens a file system for writing, joins threads to the running transaction
//!   ([`Handle`]), commits, takes snapshots, deletes trees.
//! - [`space`]: block groups in memory, allocation, reservations.
//! - [`refs`]: delayed references. [`extent`]: the extent tree, which they change, and checksums.
//! - [`free_space_tree`], [`chunk`]: the other trees of bookkeeping.
//! - [`Quotas`]: what subvolumes refer to, and their limits.
//! - [`Recovery`]: replaying the log trees that a crash left. [`LogWriter`]: writing some.
//! - [`Items`]: a tree as bookkeeping sees it, so that all of it also runs against an ordered map.
//!
//! # Invariants
//! - Nothing that the last durable superblock leads to is overwritten.
//! - The extent tree, the free space tree and the block groups of a committed state say exactly what
//!   its trees use, and how often.
//! - An allocation searches no tree. Nothing but the count of a block that snapshots may share is
//!   looked up while a tree block is locked.
//! - A thread that reserved space gets it. ENOSPC comes before anything changes.
//! - After an error in a commit nothing is written.
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
    Aborted, BackgroundCommits, Cleaning, DataExtent, DataOwner, Exclusive, Handle, NewSnapshot,
    TransactionHook, TransactionManager,
};
pub use quota::{Counted, QuotaLimit, QuotaReservation, Quotas};
pub use tree_items::TreeItems;
