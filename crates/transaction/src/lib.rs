//! From one committed state to the next.
//!
//! - [`TransactionManager`]: opens a file system for writing, joins threads to the running
//!   transaction ([`Handle`]), commits, takes snapshots, deletes trees.
//! - [`space`]: block groups in memory, allocation, reservations.
//! - [`refs`]: delayed references. [`extent`]: the extent tree, which they change, and checksums.
//! - [`free_space_tree`], [`chunk`]: the other trees of bookkeeping.
//! - [`Quotas`]: what subvolumes refer to, and their limits.
//! - [`Recovery`]: replaying the log trees that a crash left. [`LogWriter`]: writing log trees.
//! - [`Items`]: a tree as bookkeeping sees it, so that all of it also runs against an ordered map.
//!
//! # Invariants
//! - Nothing that the last durable superblock leads to is overwritten.
//! - The extent tree, the free space tree and the block groups of a committed state describe
//!   exactly what its trees use, and how often.
//! - An allocation searches no tree. While a tree block is locked, the only lookup is that of the
//!   reference count of a block that snapshots may share.
//! - A thread that reserved space gets it. ENOSPC comes before anything changes.
//! - After an error in a commit nothing is written.
//! - A commit is a whole state: only the superblocks lead to its blocks. They come last, after a
//!   flush and before another one. Their copies follow when the first ones are durable.
//! - Space that a commit freed is pinned until that commit is durable, and until no reader keeps an
//!   earlier state (`space/kept.rs`). If discards are on, it is discarded before it can be allocated
//!   again.
//! - After an error in a commit, or a panic in the middle of a change, the file system is
//!   read-only, with the time and the reason (`manager/abort.rs`). The last commit stands.
//! - Opening for writing reads the roots of all trees that commits or the kernel need, and compares
//!   chunks, device extents and block groups (`manager/load.rs`, `manager/cross_check.rs`). So
//!   opening refuses damage, and no commit finds it.
//! - Devices that missed commits are brought up to date before a file system is open for writing.
//!   If a device is missing, a commit that the device lacks comes before any other change
//!   (`manager/resync.rs`).
//! - A thread reserves space before it changes anything, for the worst case of each item. Deletions
//!   always find space. A thread gets ENOSPC only after all threads that had joined have left, all
//!   deletions that had begun have ended, and a commit has freed their space
//!   (`manager/space_flush.rs`).
//! - Delayed references are merged in memory, additions before drops, and run until none are left.
//!   Space for running them is spoken for from when they are queued (`refs::Payer`). If it is short,
//!   each thread runs them when it leaves the transaction.
//!   A batch is sorted by address: the items of neighbours change together, one leaf of the extent
//!   tree at a time.
//! - Each commit updates the DEV_STATS items, which count the errors of devices. Errors alone cause
//!   no commit in the background.
//! - The thread that commits sleeps while there is nothing to commit (`manager/commit_timer.rs`).
//!   The first thread that joins after a commit that left nothing wakes it. It commits an interval
//!   later, or as soon as much has changed. While it writes, as much may change again and no more:
//!   further threads wait before they join.
//! - Log trees that a crash left are claimed before anything is allocated, and replayed in one
//!   transaction by the crate that knows files. Before the commit of that transaction nothing is
//!   written.
//! - Logs are written between commits: blocks, a flush, the first copy of the last commit's
//!   superblock with the log in it, a flush. They refer to nothing outside the block groups of the
//!   last commit, and the next commit frees them. A log that was not completed is never written.
//!
//! # Quota groups
//! Quota groups are counted in memory ([`Quotas`]), from the items on disk, and written with each
//! commit. They are marked as inconsistent, so that the kernel counts again. Counts of tree blocks
//! are exact. Counts of data are exact, with two exceptions: extents that one subvolume shares with
//! itself across leaves that snapshots have too, and extents that have more references than fit
//! into their item. Exclusive counts, and counts of higher groups, are estimates: only the
//! subvolume that changes is counted anew. No reservation exceeds a limit.
//!
//! `docs/locking.md` has the order in which locks are taken.
#![forbid(unsafe_code)]

pub mod chunk;
mod copy;
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

pub use copy::Moved;
pub use error::{Error, Result};
pub use items::{Items, Look};
pub use log::{FoundLog, LogWriter, Recovery};
pub use manager::{
    Aborted, BackgroundCommits, BalanceProgress, Balanced, Chosen, Cleaning, Conversion,
    DataExtent, DataOwner, DeviceProgress, Emptied, Exclusive, Handle, KeptTrees, NewSnapshot,
    Replacement, ResyncProgress, Tell, TellBalance, TransactionHook, TransactionManager, Trees,
    choose,
};
pub use quota::{Counted, QuotaLimit, QuotaReservation, Quotas};
pub use tree_items::TreeItems;
