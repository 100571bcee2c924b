//! Transactions: many threads change trees, and commits make their changes durable.
//!
//! - [`TransactionManager`] (`transaction_manager.rs`): the parts of a file system that is open for
//!   writing.
//! - [`Handle`] (`handle.rs`) and [`Exclusive`] (`exclusive.rs`): the two rights to change trees.
//!   `join_gate.rs` keeps them apart.
//! - [`Trees`] (`trees.rs`): the trees that are open, and their root items (`roots.rs`).
//! - `commit.rs`: from the running state to a durable one. `background.rs` and `commit_timer.rs`:
//!   when.
//! - `space_flush.rs`: the steps that free space before a caller gets ENOSPC. `space_waiters.rs`
//!   puts callers in order.
//! - `tree_space.rs`, `block_references.rs`, `data_references.rs`: blocks and references, as
//!   changing trees report them. `bookkeeping.rs` brings the trees that account for them up to
//!   date.
//! - `devices/`: adding, removing and resizing devices, and converting profiles. `move_chunk.rs`: what
//!   these do to each chunk.
//! - `open.rs`: from a volume to a manager. `resync.rs` copies missed commits to devices.
//!
//! # Invariants
//! - A thread that changes a tree has a [`Handle`] or an [`Exclusive`].
//! - A thread reserves space before it starts a change. After that, only a damaged file system or a
//!   failing device makes the change fail.
//! - After an abort nothing is written.

mod abort;
mod background;
mod balance;
mod block_references;
mod bookkeeping;
mod cleaning;
mod commit;
mod commit_timer;
mod cross_check;
mod data_references;
mod device_stats;
mod devices;
mod drop_tree;
mod durable;
mod exclusive;
mod finishing;
mod handle;
mod hook;
mod join_gate;
mod kept_state;
mod kept_trees;
mod left_relocation;
mod load;
mod move_chunk;
mod open;
mod relocation;
mod resync;
mod roots;
mod space_flush;
mod space_waiters;
mod superblock;
mod system_trees;
mod transaction_manager;
mod tree_space;
mod trees;
mod write_blocks;

pub(crate) use roots::parse_root;
pub(crate) use write_blocks::write_blocks;

pub use abort::Aborted;
pub use background::BackgroundCommits;
pub use balance::{BalanceProgress, Balanced, Chosen, TellBalance, choose};
pub use cleaning::Cleaning;
pub use data_references::{DataExtent, DataOwner};
pub use devices::{Conversion, DeviceProgress, Replacement, Tell};
pub use exclusive::Exclusive;
pub use handle::Handle;
pub use hook::TransactionHook;
pub use kept_trees::KeptTrees;
pub use relocation::Emptied;
pub use resync::ResyncProgress;
pub use transaction_manager::TransactionManager;
pub use trees::{NewSnapshot, Trees};
