//! Transactions: many threads change trees, and commits make their changes durable.
//!
//! - [`TransactionManager`] (`transaction_manager.rs`): the parts of a file system that is open for writing.
//! - [`Handle`] (`handle.rs`) and [`Exclusive`] (`exclusive.rs`): the two rights to change trees.
//!   `join_gate.rs` keeps them apart.
//! - `commit.rs`: from the running state to a durable one. `background.rs` and `commit_timer.rs`: when.
//! - `space_flush.rs`: the steps that free space before a caller gets ENOSPC.
//! - `tree_space.rs`, `block_references.rs`, `data_references.rs`: blocks and references, as changing trees
//!   report them. `bookkeeping.rs` brings the trees that account for them up to date.
//! - `open.rs`: from a volume to a manager.
//!
//! # Invariants
//! - A thread that changes a tree has a [`Handle`] or an [`Exclusive`].
//! - A thread reserves space before it starts a change. After that, only a damaged file system or a failing
//!   device makes the change fail.
//! - After an abort nothing is written.

mod abort;
mod background;
mod block_references;
mod bookkeeping;
mod cleaning;
mod commit;
mod commit_timer;
mod cross_check;
mod data_references;
mod device_stats;
mod drop_tree;
mod durable;
mod exclusive;
mod handle;
mod hook;
mod join_gate;
mod load;
mod open;
mod resync;
mod roots;
mod snapshot;
mod space_flush;
mod superblock;
mod system_trees;
mod tickets;
mod transaction_manager;
mod tree_space;
mod trees;

pub(crate) use roots::parse_root;

pub use abort::Aborted;
pub use background::BackgroundCommits;
pub use cleaning::Cleaning;
pub use data_references::{DataExtent, DataOwner};
pub use exclusive::Exclusive;
pub use handle::Handle;
pub use hook::TransactionHook;
pub use snapshot::NewSnapshot;
pub use transaction_manager::TransactionManager;
