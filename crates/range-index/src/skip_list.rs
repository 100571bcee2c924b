//! The skip list of nodes that an index is made of.

use std::marker::PhantomData;
use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::Value;
use crate::block::Builder;
use crate::node::{self, Node, NodeRef};
use crate::slabs::{MAX_HEIGHT, Slabs};
use crate::stats::Counters;
use crate::sync::{AtomicUsize, Ordering};

/// The nodes, their memory, and what they hold together. `KEYS` is how many entries a node holds
/// before it is split.
pub(crate) struct SkipList<V, const KEYS: usize> {
    head: *mut Node<V>,
    /// The memory of all nodes.
    pub(crate) slabs: Arc<Slabs>,
    /// The highest level with a link, or more.
    pub(crate) top: AtomicUsize,
    pub(crate) stats: Counters,
    values: PhantomData<V>,
}

// SAFETY: the list owns its nodes and values. When it moves, only retired blocks stay behind. No
// value is in two blocks, so the values in retired blocks are not in the index any more. Readers
// reach them, but readers borrow the index and so keep it from moving. In the end one thread drops
// them, after the last reader; it may be any thread, which `Send` allows.
unsafe impl<V: Send, const KEYS: usize> Send for SkipList<V, KEYS> {}
// SAFETY: through `&self` threads put in and take out values, which takes `Send`, and look at and
// clone the same value at once, which takes `Sync`; they never get a `&mut` to one. All other
// shared state is atomic.
unsafe impl<V: Send + Sync, const KEYS: usize> Sync for SkipList<V, KEYS> {}

impl<V: Value, const KEYS: usize> SkipList<V, KEYS> {
    /// An empty list, with so many stripes of counters.
    pub(crate) fn new(stripes: usize) -> Self {
        let slabs = Arc::new(Slabs::new());
        Self {
            head: node::allocate(&slabs, MAX_HEIGHT, Builder::new(0..u64::MAX, 0).finish()),
            slabs,
            top: AtomicUsize::new(0),
            stats: Counters::new(stripes),
            values: PhantomData,
        }
    }

    pub(crate) fn head<'g>(&self, _: &'g Guard) -> NodeRef<'g, V> {
        // SAFETY: the head is freed with the list only, which outlives every use of a node.
        unsafe { NodeRef::from_raw(self.head) }.expect("a list has a head")
    }

    /// The highest level with a link, or more.
    pub(crate) fn top(&self) -> usize {
        self.top.load(Ordering::SeqCst)
    }
}

impl<V, const KEYS: usize> Drop for SkipList<V, KEYS> {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no other thread uses the list, and retired nodes are out of the
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
