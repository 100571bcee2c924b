//! The index: its state as a whole. `insert.rs`, `remove.rs`, `reshape.rs`, `holes.rs` and
//! `iterate.rs` have what is done with it.

use crate::skip_list::SkipList;
use crate::stats::{MANY, Stats};

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
    pub(crate) list: SkipList<V, KEYS>,
}

impl<V: Value> RangeIndex<V> {
    /// An empty index.
    pub fn new() -> Self {
        Self::with_node_size()
    }

    /// An empty index that takes little memory while it has few entries, for few writers: all count
    /// in the same place.
    pub fn for_few_writers() -> Self {
        Self { list: SkipList::new(1) }
    }
}

impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// An empty index with `KEYS` entries to a node.
    pub fn with_node_size() -> Self {
        const { assert!(KEYS >= 4, "a node has room for 4 entries at least") };
        Self { list: SkipList::new(MANY) }
    }

    /// How many entries there are; exact when no edit is in progress.
    pub fn len(&self) -> usize {
        self.list.stats.entries() as usize
    }

    /// Whether there is no entry; exact when no edit is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many addresses the entries cover; exact when no edit is in progress.
    pub fn covered(&self) -> u64 {
        self.list.stats.covered()
    }

    /// How often writers had to wait so far.
    pub fn stats(&self) -> Stats {
        self.list.stats.snapshot()
    }
}

impl<V: Value> Default for RangeIndex<V> {
    fn default() -> Self {
        Self::new()
    }
}
