//! Tree blocks in memory: trees that stay as they were committed, and trees that change.
//!
//! - [`BlockCache`] holds tree blocks for all threads, each verified once on the way in;
//!   [`BlockStore`] is where they come from: a [`larder_volume::Volume`] on devices, a
//!   [`MemoryStore`] in memory.
//! - [`Tree`] is a committed tree: immutable, read without locks. [`Cursor`] walks it, [`Range`]
//!   iterates over a part of it, [`Readahead`] says who is walking.
//! - [`Forest`] has the trees that change and the generation that they change in. [`LiveTree`] is one
//!   of them, [`BlockSpace`] what it asks of whoever manages space and references, [`WriteSet`] what a
//!   commit has to write.
//! - [`TreeView`] is either kind, to read from.
//!
//! # Invariants
//! - A [`Block`] that anyone can see has passed every check of [`block::verify`]: what follows may
//!   index into it without checking again. The same checks are made before a block is written.
//! - Blocks that are handed out never change, and live as long as somebody holds them.
//! - A block is changed in place only under its write lock, if it was born in the running generation
//!   and neither written nor shared by a snapshot since. Every other block is copied first.
//! - Locks are taken from the root down and from left to right; a lock that is only tried may be taken
//!   in any order. Debug builds hold every thread to it.
//! - A descent goes down exactly one level at a time from a level below 8, and a child's keys lie
//!   within the range that its parent says: no image can make a walk loop or visit a key twice.
//! - No lock is held while a block is being read from the store.
//! - The cache holds at most its limit, plus what callers themselves keep alive. Blocks that are not
//!   written yet are beside it.
#![cfg_attr(not(feature = "shuttle"), forbid(unsafe_code))]

pub mod block;
mod cache;
mod cursor;
mod error;
mod expected;
mod item_ref;
mod live;
mod lock;
mod memory;
mod range;
mod readahead;
mod root;
mod stats;
mod store;
mod tree;
mod view;
mod volume_store;

pub use block::Block;
pub use cache::{BlockCache, Fetched};
pub use cursor::Cursor;
pub use error::{Problem, TreeError};
pub use expected::Expected;
pub use item_ref::ItemRef;
#[cfg(feature = "ablation")]
pub use live::LockPolicy;
pub use live::{
    BlockIdentity, BlockRequest, BlockSpace, ChangeError, Copied, Forest, Keep, LiveCursor,
    LiveTree, Shape, SpaceError, WriteSet,
};
#[cfg(feature = "ablation")]
pub use lock::Waiting;
pub use memory::MemoryStore;
pub use range::Range;
pub use readahead::Readahead;
pub use root::TreeRoot;
pub use stats::{ChangeStats, LockStats, Stats};
pub use store::{BlockStore, StoreError};
pub use tree::Tree;
pub use view::{TreeView, ViewCursor};
