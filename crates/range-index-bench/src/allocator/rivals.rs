//! The allocators: the index, and common solutions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use intrusive_collections::RBTree;
use larder_range_index::{KEYS_PER_NODE, Order, RangeIndex, Request};
use parking_lot::{Mutex, MutexGuard};

use super::CELL;
use super::gap_tree::GapTree;
use crate::maps::{ByStart, Extent};

/// How often and how long threads made each other wait.
#[derive(Clone, Copy, Default)]
pub(super) struct Waiting {
    pub(super) blocked: u64,
    pub(super) held_ns: u64,
}

pub(super) trait Allocator: Sync {
    const NAME: &'static str;

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self;
    fn claim(&self, len: u64, hint: u64) -> Option<u64>;
    fn free(&self, start: u64, len: u64);
    fn waiting(&self) -> Waiting;
}

/// A mutex that counts how often it was taken already, and measures how long it was held. Reading
/// the clock takes about as long as a quick claim, so it measures only once in [`Watched::SAMPLE`]
/// times.
struct Watched<T> {
    inner: Mutex<Counted<T>>,
    blocked: AtomicU64,
    held_ns: AtomicU64,
}

struct Counted<T> {
    inner: T,
    taken: u64,
}

struct WatchedGuard<'a, T> {
    guard: MutexGuard<'a, Counted<T>>,
    sampled: Option<Instant>,
    held_ns: &'a AtomicU64,
}

impl<T> Watched<T> {
    const SAMPLE: u64 = 15;

    fn new(inner: T) -> Self {
        Watched {
            inner: Mutex::new(Counted { inner, taken: 0 }),
            blocked: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> WatchedGuard<'_, T> {
        let mut guard = self.inner.try_lock().unwrap_or_else(|| {
            self.blocked.fetch_add(1, Ordering::Relaxed);
            self.inner.lock()
        });
        guard.taken += 1;
        let sampled = guard.taken.is_multiple_of(Self::SAMPLE).then(Instant::now);
        WatchedGuard { guard, sampled, held_ns: &self.held_ns }
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            blocked: self.blocked.load(Ordering::Relaxed),
            held_ns: self.held_ns.load(Ordering::Relaxed),
        }
    }
}

impl<T> Deref for WatchedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard.inner
    }
}

impl<T> DerefMut for WatchedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard.inner
    }
}

impl<T> Drop for WatchedGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(since) = self.sampled {
            let held = since.elapsed().as_nanos() as u64 * Watched::<T>::SAMPLE;
            self.held_ns.fetch_add(held, Ordering::Relaxed);
        }
    }
}

/// Keys per node of an index that is edited more often than it is read.
pub(super) const SMALL_NODE: usize = 16;

/// The index: claims from a random hint.
pub(super) struct Hinted<const KEYS: usize>(RangeIndex<u64, KEYS>, u64);

/// The index: every claim takes the lowest hole.
pub(super) struct Lowest(Hinted<KEYS_PER_NODE>);

impl<const KEYS: usize> Allocator for Hinted<KEYS> {
    const NAME: &'static str = match KEYS {
        KEYS_PER_NODE => "range-index, from a hint",
        SMALL_NODE => "range-index of 16 keys per node, from a hint",
        _ => "range-index of other nodes, from a hint",
    };

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self {
        let index = RangeIndex::with_node_size();
        for cell in (0..cells).filter(|cell| !holes.contains(cell)) {
            index.insert(cell * CELL..(cell + 1) * CELL, cell).expect("cells do not overlap");
        }
        Hinted(index, cells * CELL)
    }

    fn claim(&self, len: u64, hint: u64) -> Option<u64> {
        self.0.claim(&Request::new(len).within(0..self.1).order(Order::From(hint)), 0)
    }

    fn free(&self, start: u64, _: u64) {
        self.0.remove(start).expect("what was claimed is there");
    }

    fn waiting(&self) -> Waiting {
        let stats = self.0.stats();
        Waiting { blocked: stats.blocked + stats.lost_exchanges, held_ns: stats.held_ns }
    }
}

impl Allocator for Lowest {
    const NAME: &'static str = "range-index, lowest";

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self {
        Lowest(Hinted::with_holes(cells, holes))
    }

    fn claim(&self, len: u64, _: u64) -> Option<u64> {
        let Hinted(index, space) = &self.0;
        index.claim(&Request::new(len).within(0..*space), 0)
    }

    fn free(&self, start: u64, len: u64) {
        self.0.free(start, len);
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}

/// An ordered map of the used ranges, searched from the bottom.
pub(super) struct LockedBTree(Watched<BTreeMap<u64, u64>>, u64);

impl Allocator for LockedBTree {
    const NAME: &'static str = "Mutex<BTreeMap>, lowest";

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self {
        let taken = (0..cells).filter(|cell| !holes.contains(cell));
        let taken = taken.map(|cell| (cell * CELL, (cell + 1) * CELL)).collect();
        LockedBTree(Watched::new(taken), cells * CELL)
    }

    fn claim(&self, len: u64, _: u64) -> Option<u64> {
        let mut map = self.0.lock();
        let mut from = 0;
        for (&start, &end) in map.iter().chain([(&self.1, &self.1)]) {
            if start - from >= len {
                break;
            }
            from = end;
        }
        (from + len <= self.1).then(|| {
            map.insert(from, from + len);
            from
        })
    }

    fn free(&self, start: u64, _: u64) {
        self.0.lock().remove(&start).expect("what was claimed is there");
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}

/// A red-black tree of the used ranges, searched from the end of the last search.
pub(super) struct LockedRedBlack(Watched<(RBTree<ByStart>, u64)>, u64);

impl LockedRedBlack {
    fn search(tree: &RBTree<ByStart>, range: std::ops::Range<u64>, len: u64) -> Option<u64> {
        let before = tree.upper_bound(intrusive_collections::Bound::Included(&range.start));
        let mut from = before.get().map_or(range.start, |extent| extent.end.max(range.start));
        let mut at = tree.lower_bound(intrusive_collections::Bound::Excluded(&range.start));
        loop {
            let next = at.get().map_or(range.end, |extent| extent.start.min(range.end));
            if next >= from && next - from >= len {
                return Some(from);
            }
            from = at.get().filter(|_| next < range.end)?.end;
            at.move_next();
        }
    }
}

impl Allocator for LockedRedBlack {
    const NAME: &'static str = "Mutex<red-black tree>, cursor";

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self {
        let mut tree = RBTree::new(ByStart::new());
        for cell in (0..cells).filter(|cell| !holes.contains(cell)) {
            tree.insert(Box::new(Extent::new(cell * CELL, (cell + 1) * CELL, cell)));
        }
        LockedRedBlack(Watched::new((tree, 0)), cells * CELL)
    }

    fn claim(&self, len: u64, _: u64) -> Option<u64> {
        let mut locked = self.0.lock();
        let (tree, cursor) = &mut *locked;
        let start = Self::search(tree, *cursor..self.1, len)
            .or_else(|| Self::search(tree, 0..self.1, len))?;
        tree.insert(Box::new(Extent::new(start, start + len, 0)));
        *cursor = start;
        Some(start)
    }

    fn free(&self, start: u64, _: u64) {
        self.0.lock().0.find_mut(&start).remove().expect("what was claimed is there");
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}

/// A balanced tree of the used ranges in which every node has the largest hole below it.
pub(super) struct LockedGapTree(Watched<GapTree>);

impl Allocator for LockedGapTree {
    const NAME: &'static str = "Mutex<tree with largest holes>, lowest";

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self {
        let mut tree = GapTree::new(cells * CELL);
        for cell in (0..cells).filter(|cell| !holes.contains(cell)) {
            tree.insert(cell * CELL, (cell + 1) * CELL);
        }
        LockedGapTree(Watched::new(tree))
    }

    fn claim(&self, len: u64, _: u64) -> Option<u64> {
        let tree = &mut *self.0.lock();
        let start = tree.lowest_hole(len)?;
        tree.insert(start, start + len);
        Some(start)
    }

    fn free(&self, start: u64, _: u64) {
        assert!(self.0.lock().remove(start), "what was claimed is there");
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}

/// The free ranges by address and by length: no search at all, at the price of a second tree and
/// without the used ranges.
pub(super) struct LockedFree(Watched<FreeSpace>);

#[derive(Default)]
struct FreeSpace {
    by_start: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
}

impl FreeSpace {
    fn add(&mut self, start: u64, end: u64) {
        self.by_start.insert(start, end);
        self.by_len.insert((end - start, start));
    }

    fn take(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(end - start, start));
    }
}

impl Allocator for LockedFree {
    const NAME: &'static str = "Mutex<free by start and by length>, best fit";

    fn with_holes(_: u64, holes: &BTreeSet<u64>) -> Self {
        let mut free = FreeSpace::default();
        for hole in holes {
            free.add(hole * CELL, (hole + 1) * CELL);
        }
        LockedFree(Watched::new(free))
    }

    fn claim(&self, len: u64, _: u64) -> Option<u64> {
        let free = &mut *self.0.lock();
        let &(found, start) = free.by_len.range((len, 0)..).next()?;
        free.take(start, start + found);
        if found > len {
            free.add(start + len, start + found);
        }
        Some(start)
    }

    fn free(&self, start: u64, len: u64) {
        let free = &mut *self.0.lock();
        let (mut low, mut high) = (start, start + len);
        if let Some((&left, &end)) = free.by_start.range(..start).next_back()
            && end == start
        {
            free.take(left, end);
            low = left;
        }
        if let Some(&end) = free.by_start.get(&high) {
            free.take(high, end);
            high = end;
        }
        free.add(low, high);
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}
