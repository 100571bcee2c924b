//! A concurrent index of ranges: non-overlapping ranges of `u64` mapped to values. Readers never
//! wait, writers in different places do not meet, and the search for a hole of a given size skips
//! full space.
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
//! larger. How many links a node has is chosen when it is made, so that searches enter few nodes at
//! any level (`heights.rs`).
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
//! 6. What has been replaced or unlinked is freed when every thread that could see it has moved on
//!    (epoch reclamation). A block becomes the next block of the thread that freed it (`spare.rs`),
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
//!   to left, and never a block lock while holding a tower lock. The lock of the slabs comes last.
//!   A thread that makes a node holds it for a few instructions.
//!
//! - *Memory*: a thread that has retired many blocks which a preempted thread holds back lets
//!   others run, once for each 64 blocks more (`reclaim.rs`).
//!
//! # Why values are cloned
//! A reader holds `&V` into a block that an edit of a neighbour replaces. Copying values bit by bit
//! would make two copies of one value; that is unsound for anything with interior mutability, and a
//! sequence lock around a value in place is a data race for any type but atomics. So a block owns
//! its values, an edit clones those it keeps, and a retired block drops its own. Integers and other
//! `Copy` types cost a `memcpy`; large or shared state goes in an `Arc`.
//!
//! # Threads and values
//! A value is `Clone + Send + 'static`. `Send`, since whichever thread moves the epoch on drops
//! what was retired. An index moves to another thread if its values do (`Send`), and threads share
//! it if they may share its values (`Sync`): then two of them may look at one value at once, as
//! readers and as writers that clone it for an edit of its neighbours. An index of values that are
//! only `Send` is for one thread at a time:
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
//! Nor does an index of values that stay on one thread:
//!
//! ```compile_fail,E0277
//! # use larder_range_index::RangeIndex;
//! # use std::rc::Rc;
//! let index = RangeIndex::<Rc<u32>>::new();
//! ```
//!
//! A [`Reader`] pins the thread that it was made on and never leaves it; nor does the index while
//! it lends a reader, even when it could:
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
//! A value that all threads share and change in place goes in an `Arc<Mutex<_>>`; that takes no
//! edit of the index:
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
mod bound;
mod edit;
mod heights;
mod holes;
mod index;
mod insert;
mod iterate;
mod node;
mod reclaim;
mod remove;
mod reshape;
mod search;
mod skip_list;
mod slabs;
mod spare;
mod stats;
mod structure;
mod sync;

pub use crate::holes::{Order, Request};
pub use crate::index::{KEYS_PER_NODE, RangeIndex, Value};
pub use crate::insert::Overlap;
pub use crate::iterate::{Ascending, Descending, Entry, Reader};
pub use crate::reshape::ResizeError;
pub use crate::stats::Stats;
