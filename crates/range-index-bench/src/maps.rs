//! The maps, with the few operations that the workloads need. All map the start of a range to its
//! end and a value, and look up by the last start at or before a point.
//!
//! Inserting looks at both neighbours first. Only the range index and the locked maps do so in one
//! atomic step; for the others the check does the same work and proves nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use concurrent_map::ConcurrentMap;
use crossbeam_skiplist::SkipMap;
use intrusive_collections::{KeyAdapter, RBTree, RBTreeLink, intrusive_adapter};
use larder_range_index::RangeIndex;
use parking_lot::{Mutex, RwLock};
use scc::TreeIndex;
use scc::tree_index::Proximity;

/// A map that several threads share through handles.
pub(crate) trait Map: Send + Sync + Sized {
    const NAME: &'static str;

    fn new() -> Self;
    /// For another thread.
    fn handle(&self) -> Self;
    fn insert(&self, start: u64, end: u64, value: u64) -> bool;
    fn remove(&self, start: u64) -> bool;
    /// The value of the entry that covers the point.
    fn get(&self, point: u64) -> Option<u64>;
}

type Ends = (u64, u64);

pub(crate) type Index = Arc<RangeIndex<u64>>;

impl<const KEYS: usize> Map for Arc<RangeIndex<u64, KEYS>> {
    const NAME: &'static str = "range-index";

    fn new() -> Self {
        Arc::new(RangeIndex::with_node_size())
    }

    fn handle(&self) -> Self {
        Arc::clone(self)
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        RangeIndex::insert(self, start..end, value).is_ok()
    }

    fn remove(&self, start: u64) -> bool {
        RangeIndex::remove(self, start).is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        self.reader().get(point).map(|entry| *entry.value)
    }
}

/// An unshared map, for one thread only.
pub(crate) struct Unshared(std::cell::UnsafeCell<BTreeMap<u64, Ends>>);

// SAFETY: `handle` hands out nothing, and the workloads run this map on one thread.
unsafe impl Sync for Unshared {}

fn overlaps(map: &BTreeMap<u64, Ends>, start: u64, end: u64) -> bool {
    map.range(..end).next_back().is_some_and(|(_, &(last_end, _))| last_end > start)
}

fn covering<'a>(found: Option<(&'a u64, &'a Ends)>, point: u64) -> Option<u64> {
    found.filter(|(_, (end, _))| *end > point).map(|(_, (_, value))| *value)
}

impl Map for Unshared {
    const NAME: &'static str = "BTreeMap, unshared";

    fn new() -> Self {
        Unshared(std::cell::UnsafeCell::new(BTreeMap::new()))
    }

    fn handle(&self) -> Self {
        unreachable!("for one thread only")
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        // SAFETY: one thread, and no reference outlives a method.
        let map = unsafe { &mut *self.0.get() };
        !overlaps(map, start, end) && map.insert(start, (end, value)).is_none()
    }

    fn remove(&self, start: u64) -> bool {
        // SAFETY: as above.
        unsafe { &mut *self.0.get() }.remove(&start).is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        // SAFETY: as above.
        let map = unsafe { &*self.0.get() };
        covering(map.range(..=point).next_back(), point)
    }
}

impl Map for Arc<RwLock<BTreeMap<u64, Ends>>> {
    const NAME: &'static str = "RwLock<BTreeMap>";

    fn new() -> Self {
        Arc::default()
    }

    fn handle(&self) -> Self {
        Arc::clone(self)
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        let mut map = self.write();
        !overlaps(&map, start, end) && map.insert(start, (end, value)).is_none()
    }

    fn remove(&self, start: u64) -> bool {
        self.write().remove(&start).is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        covering(self.read().range(..=point).next_back(), point)
    }
}

/// A node of a red-black tree, as in a kernel.
pub(crate) struct Extent {
    link: RBTreeLink,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: u64,
}

impl Extent {
    pub(crate) fn new(start: u64, end: u64, value: u64) -> Self {
        Extent { link: RBTreeLink::new(), start, end, value }
    }
}

#[allow(clippy::expl_impl_clone_on_copy, reason = "the macro does")]
mod adapter {
    use super::{Extent, RBTreeLink, intrusive_adapter};

    intrusive_adapter!(pub(crate) ByStart = Box<Extent>: Extent { link => RBTreeLink });
}

pub(crate) use adapter::ByStart;

impl KeyAdapter<'_> for ByStart {
    type Key = u64;

    fn get_key(&self, extent: &Extent) -> u64 {
        extent.start
    }
}

impl Map for Arc<Mutex<RBTree<ByStart>>> {
    const NAME: &'static str = "Mutex<red-black tree>";

    fn new() -> Self {
        Arc::new(Mutex::new(RBTree::new(ByStart::new())))
    }

    fn handle(&self) -> Self {
        Arc::clone(self)
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        let mut tree = self.lock();
        let last = tree.upper_bound(intrusive_collections::Bound::Excluded(&end));
        if last.get().is_some_and(|last| last.end > start) {
            return false;
        }
        tree.insert(Box::new(Extent::new(start, end, value)));
        true
    }

    fn remove(&self, start: u64) -> bool {
        self.lock().find_mut(&start).remove().is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        let tree = self.lock();
        let last = tree.upper_bound(intrusive_collections::Bound::Included(&point));
        last.get().filter(|last| last.end > point).map(|last| last.value)
    }
}

impl Map for Arc<SkipMap<u64, Ends>> {
    const NAME: &'static str = "crossbeam-skiplist";

    fn new() -> Self {
        Arc::default()
    }

    fn handle(&self) -> Self {
        Arc::clone(self)
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        let last = self.upper_bound(Bound::Excluded(&end));
        let free = last.is_none_or(|last| last.value().0 <= start);
        if free {
            SkipMap::insert(self, start, (end, value));
        }
        free
    }

    fn remove(&self, start: u64) -> bool {
        SkipMap::remove(self, &start).is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        let last = self.upper_bound(Bound::Included(&point))?;
        let (end, value) = *last.value();
        (end > point).then_some(value)
    }
}

/// Its handles are clones, and a handle stays on its thread.
pub(crate) struct LockFreeTree(ConcurrentMap<u64, Ends>);

// SAFETY: the workloads use each handle on one thread at a time; see `Map::handle`.
unsafe impl Sync for LockFreeTree {}

impl Map for LockFreeTree {
    const NAME: &'static str = "concurrent-map";

    fn new() -> Self {
        LockFreeTree(ConcurrentMap::new())
    }

    fn handle(&self) -> Self {
        LockFreeTree(self.0.clone())
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        let last = self.0.get_lt(&end);
        let free = last.is_none_or(|(_, (last_end, _))| last_end <= start);
        if free {
            self.0.insert(start, (end, value));
        }
        free
    }

    fn remove(&self, start: u64) -> bool {
        self.0.remove(&start).is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        let (_, (end, value)) = self.0.get_lte(&point)?;
        (end > point).then_some(value)
    }
}

impl Map for Arc<TreeIndex<u64, Ends>> {
    const NAME: &'static str = "scc::TreeIndex";

    fn new() -> Self {
        Arc::default()
    }

    fn handle(&self) -> Self {
        Arc::clone(self)
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        let guard = scc::Guard::new();
        let last = match self.locate(&(end - 1), &guard) {
            Proximity::Exact(at) | Proximity::Between(at) => at.get(),
            Proximity::Smaller(at) => at.get_back(),
            Proximity::Larger(_) | Proximity::Empty => None,
        };
        last.is_none_or(|(_, (last_end, _))| *last_end <= start)
            && self.insert_sync(start, (end, value)).is_ok()
    }

    fn remove(&self, start: u64) -> bool {
        self.remove_sync(&start)
    }

    fn get(&self, point: u64) -> Option<u64> {
        let guard = scc::Guard::new();
        let last = match self.locate(&point, &guard) {
            Proximity::Exact(at) | Proximity::Between(at) => at.get(),
            Proximity::Smaller(at) => at.get_back(),
            Proximity::Larger(_) | Proximity::Empty => None,
        };
        covering(last, point)
    }
}
