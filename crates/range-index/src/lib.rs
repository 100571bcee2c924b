//! A concurrent index of ranges: non-overlapping ranges of `u64` mapped to values, where readers
//! never wait, writers in different places do not meet, and a hole of a given size is found
//! without walking what is full.
//!
//! ```
//! use larder_range_index::{RangeIndex, Request};
//!
//! let index = RangeIndex::new();
//! index.insert(0..4096, "bread").unwrap();
//! index.insert(8192..12288, "butter").unwrap();
//! assert_eq!(index.get(9000), Some((8192..12288, "butter")));
//! // The hole between the two is found and taken in one step.
//! assert_eq!(index.claim(&Request::new(4096), "salt"), Some(4096));
//! assert_eq!(index.covered(), 12288);
//! ```
//!
//! # Structure
//! ```text
//!  level 2   head ────────────────────────────────▶ C ───────────────▶ (end)
//!  level 1   head ───────────────▶ B ─────────────▶ C ───────────────▶ (end)
//!  level 0   head ◀────▶ A ◀─────▶ B ◀────▶ ... ◀─▶ C ◀────▶ D ──────▶ (end)
//!              │         │         │               │        │
//!  blocks    [0,40)   [40,95)   [95,200)        [300,410) [410,MAX)      one tile each
//!
//!  node    block*  prev*  tower lock  height │ (next*, key, bound) x height
//!  block   low  high  len │ key key key ... │ (end, value) (end, value) (end, value) ...
//! ```
//! A skiplist of *nodes*. Each node points to a *block*: the sorted entries of its *tile*, a
//! stretch of the address space. The tiles of the live nodes follow one another without gaps. A
//! block is immutable; an edit copies it (under a kilobyte as a rule) and exchanges the node's
//! pointer. Blocks have no spare room, so memory per entry is the entry plus a small share of the
//! node.
//!
//! Each forward link carries the *key* at which the next tile begins, so that a search does not
//! touch nodes that it does not enter, and a *bound*: no hole in the stretch that the link skips is
//! larger. How many links a node has is chosen when it is made, so that searches enter few nodes at any level
//! (`heights.rs`).
//!
//! # Invariants
//! 1. Live tiles partition `[0, u64::MAX)`. While entries move between neighbours, two tiles may
//!    overlap; then both blocks show the same entries there and both are locked.
//! 2. Every tile but the first begins with an entry. So an entry, and a hole, lies in exactly one
//!    tile, and inserting, claiming and looking up touch exactly one block.
//! 3. The contents change only by exchanging one block pointer. That exchange is when the edit
//!    happens; loading the pointer is when a lookup happens. The index is linearizable.
//! 4. The key of a link is a hint; the tile in the block decides (`search.rs`).
//! 5. The bound of a link is never less than a hole that it skips (`holes.rs`).
//! 6. What has been replaced or unlinked is freed when every thread that could see it has moved
//!    on (epoch reclamation). A block becomes the next block of the thread that freed it (`spare.rs`),
//!    a node the next one of its height in the same index (`slabs.rs`).
//!
//! # Lock protocol and progress
//! - *Readers* take no lock and write nothing that is shared. A lookup repeats a step only when a
//!   writer has completed one: readers are lock-free.
//! - *Edits within a tile* (nearly all) prepare a block and exchange the pointer, without a lock.
//!   They are lock-free among themselves and wait only for a tile that is changing its limits.
//! - *Changes of tiles* (a split, a move of entries to the left neighbour, a dead node; about one
//!   edit in a node's worth) hold the *block locks* of the one or two nodes concerned, a tag in
//!   their block pointers. Links above level 0 are changed one at a time under the *tower lock* of
//!   the node that they come from.
//! - Order: block locks before tower locks; block locks from left to right; tower locks from right
//!   to left, and never a block lock while holding a tower lock. The lock of the slabs comes last
//!   and is held for a few instructions by whoever makes a node.
//!
//! - *Memory*: who has retired much that a preempted thread holds back lets others run, once
//!   for each 64 blocks more (`reclaim.rs`).
//!
//! # Why values are cloned
//! A reader holds `&V` into a block that an edit of a neighbour replaces. Copying values bit by bit
//! would make two copies of one value; that is unsound for anything with interior mutability, and a
//! sequence lock around a value in place is a data race for any type but atomics. So a block owns
//! its values, an edit clones those it keeps, and a retired block drops its own. Integers and other
//! `Copy` types cost a `memcpy`; large or shared state goes in an `Arc`.
//!
//! # Threads and values
//! A value is `Clone + Send + 'static`. `Send`, since whichever thread moves the epoch on drops what was
//! retired. An index moves to another thread if its values do (`Send`), and threads share it
//! if they may share its values (`Sync`): then two of them may look at one value at once, as readers and
//! as writers that clone it for an edit of its neighbours. An index of values that are only `Send` is for
//! one thread at a time:
//!
//! ```
//! # use larder_range_index::RangeIndex;
//! # use std::{cell::Cell, sync::Mutex, thread};
//! let index = Mutex::new(RangeIndex::<Cell<u32>>::new());
//! thread::scope(|scope| {
//!     for at in 0..4 {
//!         let index = &index;
//!         scope.spawn(move || index.lock().unwrap().insert(at..at + 1, Cell::new(7)));
//!     }
//! });
//! assert_eq!(index.lock().unwrap().len(), 4);
//! ```
//!
//! Without the lock it does not compile:
//!
//! ```compile_fail,E0277
//! # use larder_range_index::RangeIndex;
//! # use std::{cell::Cell, thread};
//! let index = RangeIndex::<Cell<u32>>::new();
//! thread::scope(|scope| {
//!     for at in 0..4 {
//!         let index = &index;
//!         scope.spawn(move || index.insert(at..at + 1, Cell::new(7)));
//!     }
//! });
//! ```
//!
//! Nor does an index of what stays on one thread:
//!
//! ```compile_fail,E0277
//! # use larder_range_index::RangeIndex;
//! # use std::rc::Rc;
//! let index = RangeIndex::<Rc<u32>>::new();
//! ```
//!
//! A [`Reader`] pins the thread that it was made on and never leaves it; nor does the index while it
//! lends a reader, even when it could:
//!
//! ```compile_fail,E0277
//! # use larder_range_index::RangeIndex;
//! # use std::thread;
//! let index = RangeIndex::<u32>::new();
//! let reader = index.reader();
//! thread::scope(|scope| {
//!     scope.spawn(move || reader.get(0).is_some());
//! });
//! ```
//!
//! What all threads shall share and change in place goes in an `Arc<Mutex<_>>`; that takes no edit
//! of the index:
//!
//! ```
//! # use larder_range_index::RangeIndex;
//! # use std::{cell::Cell, sync::{Arc, Mutex}};
//! let index = RangeIndex::<Arc<Mutex<Cell<u32>>>>::new();
//! index.insert(0..10, Arc::default()).unwrap();
//! let reader = index.reader();
//! reader.get(5).unwrap().value.lock().unwrap().set(7);
//! assert_eq!(index.get(5).unwrap().1.lock().unwrap().get(), 7);
//! ```

mod block;
mod edit;
mod heights;
mod holes;
mod insert;
mod iterate;
mod node;
mod reclaim;
mod remove;
mod reshape;
mod search;
mod slabs;
mod spare;
mod stats;
mod structure;
mod sync;

use std::marker::PhantomData;
use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::block::Builder;
use crate::node::{MAX_HEIGHT, Node, NodeRef};
use crate::slabs::Slabs;
use crate::stats::Counters;
use crate::sync::{AtomicUsize, Ordering};

pub use crate::holes::{Order, Request};
pub use crate::insert::Overlap;
pub use crate::iterate::{Ascending, Descending, Entry, Reader};
pub use crate::reshape::ResizeError;
pub use crate::stats::Stats;

/// What can be a value: anything that clones and may be dropped on any thread.
pub trait Value: Clone + Send + 'static {}

impl<T: Clone + Send + 'static> Value for T {}

/// How many entries a node holds at most, unless the index says otherwise; chosen by measurement.
pub const KEYS_PER_NODE: usize = 64;

/// A concurrent map from non-overlapping, non-empty ranges of `u64` to values.
///
/// Addresses are below `u64::MAX`. `KEYS` is how many entries a node holds before it is split, at
/// least 4.
pub struct RangeIndex<V, const KEYS: usize = KEYS_PER_NODE> {
    head: *mut Node<V>,
    /// The memory of all nodes.
    slabs: Arc<Slabs>,
    /// The highest level with a link, or more.
    top: AtomicUsize,
    stats: Counters,
    values: PhantomData<V>,
}

// SAFETY: the index owns its nodes and values. When it moves, only retired blocks stay behind. No value
// is in two blocks, so what those hold is not in the index any more. They are reached by readers, which
// borrow the index and so keep it from moving, and in the end by whoever drops them, after the
// last reader and on any thread, which `Send` allows.
unsafe impl<V: Send, const KEYS: usize> Send for RangeIndex<V, KEYS> {}
// SAFETY: through `&self` threads put in and take out values, which takes `Send`, and look at and clone
// the same value at once, which takes `Sync`; they never get a `&mut` to one. All other shared state
// is atomic.
unsafe impl<V: Send + Sync, const KEYS: usize> Sync for RangeIndex<V, KEYS> {}

impl<V: Value> RangeIndex<V> {
    /// An empty index.
    pub fn new() -> Self {
        Self::with_node_size()
    }
}

impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// An empty index with `KEYS` entries to a node.
    pub fn with_node_size() -> Self {
        const { assert!(KEYS >= 4, "a node has room for 4 entries at least") };
        let slabs = Arc::new(Slabs::new());
        RangeIndex {
            head: node::allocate(&slabs, MAX_HEIGHT, Builder::new(0..u64::MAX, 0).finish()),
            slabs,
            top: AtomicUsize::new(0),
            stats: Counters::default(),
            values: PhantomData,
        }
    }

    /// How many entries there are; exact when no edit is in progress.
    pub fn len(&self) -> usize {
        self.stats.entries() as usize
    }

    /// Whether there is no entry; exact when no edit is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many addresses the entries cover; exact when no edit is in progress.
    pub fn covered(&self) -> u64 {
        self.stats.covered()
    }

    /// What writers had to wait for so far.
    pub fn stats(&self) -> Stats {
        self.stats.snapshot()
    }

    fn head<'g>(&self, _: &'g Guard) -> NodeRef<'g, V> {
        // SAFETY: the head is freed with the index only, which outlives every use of a node.
        unsafe { NodeRef::from_raw(self.head) }.expect("an index has a head")
    }

    /// The highest level with a link, or more.
    fn top(&self) -> usize {
        self.top.load(Ordering::SeqCst)
    }
}

impl<V: Value> Default for RangeIndex<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V, const KEYS: usize> Drop for RangeIndex<V, KEYS> {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: nobody else uses the index, and what was retired is out of the list.
        unsafe {
            let guard = crossbeam_epoch::unprotected();
            let mut next = NodeRef::from_raw(self.head);
            while let Some(node) = next {
                next = node.link(0).next(guard);
                node::free(&self.slabs, node.as_ptr());
            }
        }
    }
}
