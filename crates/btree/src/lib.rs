//! Tree blocks in memory: trees that stay as they were committed, and trees that change.
//!
//! - [`BlockCache`] holds tree blocks for all threads, each verified once on the way in;
//!   [`BlockStore`] is where they come from: a [`larder_volume::Volume`] on devices, a
//!   [`MemoryStore`] in memory.
//! - [`Tree`] is a committed tree: immutable, read without locks. [`Cursor`] walks it, [`Range`]
//!   iterates over a part of it, [`Readahead`] says how a cursor walks.
//! - [`Forest`] has the trees that change, and the generation that they change in. [`LiveTree`] is
//!   one of them. [`BlockSpace`] is the trait that the manager of space and references implements
//!   for it. [`WriteSet`] holds the blocks that a commit has to write.
//! - [`TreeView`] is either kind, to read from.
//!
//! Trees that change (`live`) stand in layers, each of which uses only those before it: `bytes`,
//! `state`, `path`, `structure`, `search`, `tree`, `forest`. The feature `ablation` lets benchmarks
//! choose how trees take their locks; without it there is one way.
//!
//! # Invariants
//! - A [`Block`] passes every check of [`block::verify`] before any caller sees it, so that callers
//!   may index into it without checking again. A block passes the same checks before it is written.
//! - A block that a caller has never changes, and lives as long as the caller keeps it.
//! - A thread changes a block in place only under its write lock, and only if the block was born in
//!   the running generation and neither written nor shared by a snapshot since. It copies every
//!   other block first.
//! - A thread takes locks from the root down and from left to right. It may try locks in any order.
//!   Debug builds hold every thread to this.
//! - The keys that a leaf covers change only under the write lock of the node above it.
//! - Batches of ascending keys are inserted, replaced and removed leaf by leaf: one descent and one
//!   lock for all keys that a leaf has and has room for. A batch asks for no more room than its
//!   next item needs.
//! - A leaf that is copied gives its memory to the copy if no other handle of it is left, since the
//!   cache forgets the replaced leaf.
//! - [`BlockSpace`] says where a block goes. Nothing in an allocation path searches a tree.
//! - A descent goes down exactly one level at a time from a level below 8, and a child's keys lie
//!   within the range that its parent says: no image can make a walk loop or visit a key twice.
//! - No thread holds a lock while it reads a block from the store.
//! - The cache holds at most its limit, plus the blocks that callers keep alive. Blocks that are
//!   not written yet do not count.
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
    LiveTree, Repointing, Shape, SpaceError, WriteSet,
};
#[cfg(feature = "ablation")]
pub use lock::{LockAction, LockEvent, Right, Waiting, record_locks};
pub use memory::MemoryStore;
pub use range::Range;
pub use readahead::Readahead;
pub use root::TreeRoot;
pub use stats::{ChangeStats, LockStats, Stats};
pub use store::{BlockStore, StoreError};
pub use tree::Tree;
pub use view::{TreeView, ViewCursor};
