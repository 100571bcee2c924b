//! The index itself: its nodes, and its state as a whole.

use std::marker::PhantomData;
use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::block::Builder;
use crate::node::{self, Node, NodeRef};
use crate::slabs::{MAX_HEIGHT, Slabs};
use crate::stats::{Counters, Stats};
use crate::sync::{AtomicUsize, Ordering};

/// A type of values: any that clones and may be dropped on any thread.
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
    pub(crate) slabs: Arc<Slabs>,
    /// The highest level with a link, or more.
    pub(crate) top: AtomicUsize,
    pub(crate) stats: Counters,
    values: PhantomData<V>,
}

// SAFETY: the index owns its nodes and values. When it moves, only retired blocks stay behind. No
// value is in two blocks, so the values in retired blocks are not in the index any more. Readers
// reach them, but readers borrow the index and so keep it from moving. In the end one thread drops
// them, after the last reader; it may be any thread, which `Send` allows.
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

    /// How often writers had to wait so far.
    pub fn stats(&self) -> Stats {
        self.stats.snapshot()
    }

    pub(crate) fn head<'g>(&self, _: &'g Guard) -> NodeRef<'g, V> {
        // SAFETY: the head is freed with the index only, which outlives every use of a node.
        unsafe { NodeRef::from_raw(self.head) }.expect("an index has a head")
    }

    /// The highest level with a link, or more.
    pub(crate) fn top(&self) -> usize {
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
        // SAFETY: `&mut self`: no other thread uses the index, and retired nodes are out of the
        // list.
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
