//! Tree blocks in memory.
//!
//! - [`BlockCache`] holds tree blocks for all threads, each verified once on the way in.
//! - [`Tree`] is a committed tree: immutable, read without locks. [`Cursor`] walks it, [`Range`]
//!   iterates over a part of it, [`Readahead`] says who is walking.
//! - [`BlockStore`] is where blocks come from; [`MemoryStore`] keeps them in memory, a
//!   [`larder_volume::Volume`] on devices.
//!
//! # Invariants
//! - A [`Block`] that anyone can see has passed every check of [`block::verify`]: what follows may
//!   index into it without checking again.
//! - Blocks that are handed out never change, and live as long as somebody holds them.
//! - A descent goes down exactly one level at a time from a level below 8, and a child's keys lie
//!   within the range that its parent says: no image can make a walk loop or visit a key twice.
//! - No lock is held while a block is being read from the store.
//! - The cache holds at most its limit, plus what callers themselves keep alive.
#![cfg_attr(not(feature = "shuttle"), forbid(unsafe_code))]

pub mod block;
mod cache;
mod cursor;
mod error;
mod item_ref;
mod live;
mod lock;
mod memory;
mod range;
mod readahead;
mod stats;
mod store;
mod tree;
mod view;
mod volume_store;

pub use block::{Block, Expected};
pub use cache::{BlockCache, Fetched};
pub use cursor::Cursor;
pub use error::{Problem, TreeError};
pub use item_ref::ItemRef;
pub use live::{
    BlockIdentity, BlockRequest, BlockSpace, ChangeError, Copied, Forest, Keep, LiveCursor,
    LiveTree, LockPolicy, Shape, SpaceError, WriteSet,
};
pub use memory::MemoryStore;
pub use range::Range;
pub use readahead::Readahead;
pub use stats::{ChangeStats, LockStats, Stats};
pub use store::{BlockStore, StoreError};
pub use tree::{Tree, TreeRoot};
pub use view::{TreeView, ViewCursor};
