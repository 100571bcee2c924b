//! An address allocator: each thread keeps ten ranges of a nearly full space, and over and over
//! frees its oldest and claims another, wherever there is a hole.
//!
//! The rivals are what one writes today: an ordered map of what is taken behind a lock, which is
//! searched for a hole from the bottom; the same as a red-black tree, searched from a cursor that
//! the last claim left behind; and two maps of what is free, by address and by length.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use intrusive_collections::RBTree;
use larder_range_index::{KEYS_PER_NODE, Order, RangeIndex, Request};
use parking_lot::{Mutex, MutexGuard};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::Arguments;
use crate::clock::{below, rate};
use crate::maps::{ByStart, Extent};

/// Ranges that each thread holds.
const DEPTH: usize = 10;
/// Threads that the space has room for, whoever takes part.
const MOST_THREADS: usize = 16;
/// The space is full of ranges of this length, but for what the threads need and a tenth more.
const CELL: u64 = 16;

/// How often and how long threads kept each other waiting.
#[derive(Clone, Copy, Default)]
struct Waiting {
    blocked: u64,
    held_ns: u64,
}

trait Allocator: Sync {
    const NAME: &'static str;

    fn with_holes(cells: u64, holes: &BTreeSet<u64>) -> Self;
    fn claim(&self, len: u64, hint: u64) -> Option<u64>;
    fn free(&self, start: u64, len: u64);
    fn waiting(&self) -> Waiting;
}

/// A mutex that knows how often it was taken already, and for how long it was held.
struct Watched<T> {
    inner: Mutex<T>,
    blocked: AtomicU64,
    held_ns: AtomicU64,
}

struct WatchedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    since: Instant,
    held_ns: &'a AtomicU64,
}

impl<T> Watched<T> {
    fn new(inner: T) -> Self {
        Watched { inner: Mutex::new(inner), blocked: AtomicU64::new(0), held_ns: AtomicU64::new(0) }
    }

    fn lock(&self) -> WatchedGuard<'_, T> {
        let guard = self.inner.try_lock().unwrap_or_else(|| {
            self.blocked.fetch_add(1, Ordering::Relaxed);
            self.inner.lock()
        });
        WatchedGuard { guard, since: Instant::now(), held_ns: &self.held_ns }
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            blocked: self.blocked.load(Ordering::Relaxed),
            held_ns: self.held_ns.load(Ordering::Relaxed),
        }
    }
}

impl<T> Drop for WatchedGuard<'_, T> {
    fn drop(&mut self) {
        self.held_ns.fetch_add(self.since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The index: claims from a hint of the thread's own.
struct Hinted<const KEYS: usize>(RangeIndex<u64, KEYS>, u64);

/// The index: every claim takes the lowest hole.
struct Lowest(Hinted<KEYS_PER_NODE>);

impl<const KEYS: usize> Allocator for Hinted<KEYS> {
    const NAME: &'static str = "range-index, from a hint";

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

/// An ordered map of what is taken, searched from the bottom.
struct LockedBTree(Watched<BTreeMap<u64, u64>>, u64);

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
        for (&start, &end) in map.guard.iter().chain([(&self.1, &self.1)]) {
            if start - from >= len {
                break;
            }
            from = end;
        }
        (from + len <= self.1).then(|| {
            map.guard.insert(from, from + len);
            from
        })
    }

    fn free(&self, start: u64, _: u64) {
        self.0.lock().guard.remove(&start).expect("what was claimed is there");
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}

/// A red-black tree of what is taken, searched from where the last search ended.
struct LockedRedBlack(Watched<(RBTree<ByStart>, u64)>, u64);

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
        let (tree, cursor) = &mut *locked.guard;
        let start = Self::search(tree, *cursor..self.1, len)
            .or_else(|| Self::search(tree, 0..self.1, len))?;
        tree.insert(Box::new(Extent::new(start, start + len, 0)));
        *cursor = start;
        Some(start)
    }

    fn free(&self, start: u64, _: u64) {
        self.0.lock().guard.0.find_mut(&start).remove().expect("what was claimed is there");
    }

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}

/// What is free, by address and by length: no search at all, at the price of a second tree and of
/// knowing nothing about what is taken.
struct LockedFree(Watched<FreeSpace>);

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
        let free = &mut *self.0.lock().guard;
        let &(found, start) = free.by_len.range((len, 0)..).next()?;
        free.take(start, start + found);
        if found > len {
            free.add(start + len, start + found);
        }
        Some(start)
    }

    fn free(&self, start: u64, len: u64) {
        let free = &mut *self.0.lock().guard;
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

fn holes(cells: u64) -> BTreeSet<u64> {
    let mut random = SmallRng::seed_from_u64(3);
    let wanted = (MOST_THREADS * DEPTH * 11 / 10) as u64;
    let mut holes = BTreeSet::new();
    while (holes.len() as u64) < wanted.min(cells / 2) {
        holes.insert(below(&mut random, cells));
    }
    holes
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    per_second: f64,
    /// Per thousand claims.
    blocked: f64,
    /// Per claim.
    held_ns: f64,
}

fn measure<A: Allocator>(allocator: &A, cells: u64, threads: usize, time: Duration) -> Outcome {
    let before = allocator.waiting();
    let rate = rate(threads, time, |_, mut random| {
        let mut owned = Held { allocator, ranges: VecDeque::new() };
        move || {
            if owned.ranges.len() == DEPTH {
                let (start, len) = owned.ranges.pop_front().expect("ten ranges");
                owned.allocator.free(start, len);
            }
            let len = CELL - below(&mut random, 4);
            let hint = below(&mut random, cells * CELL);
            if let Some(start) = owned.allocator.claim(len, hint) {
                owned.ranges.push_back((start, len));
            }
        }
    });
    let after = allocator.waiting();
    Outcome {
        per_second: rate.per_second(),
        blocked: (after.blocked - before.blocked) as f64 / rate.turns * 1000.0,
        held_ns: (after.held_ns - before.held_ns) as f64 / rate.turns,
    }
}

/// Gives everything back at the end of a measurement.
struct Held<'a, A: Allocator> {
    allocator: &'a A,
    ranges: VecDeque<(u64, u64)>,
}

impl<A: Allocator> Drop for Held<'_, A> {
    fn drop(&mut self) {
        for (start, len) in self.ranges.drain(..) {
            self.allocator.free(start, len);
        }
    }
}

/// Measures claims per second of one index with `KEYS` keys per node.
pub(crate) fn measure_index<const KEYS: usize>(
    cells: u64,
    threads: usize,
) -> impl Fn(Duration) -> f64 {
    let allocator = Hinted::<KEYS>::with_holes(cells, &holes(cells));
    move |time| measure(&allocator, cells, threads, time).per_second
}

struct Row {
    name: &'static str,
    measure: Box<dyn Fn(usize, Duration) -> Outcome>,
}

fn row<A: Allocator + 'static>(cells: u64) -> Row {
    let allocator = A::with_holes(cells, &holes(cells));
    let measure = move |threads, time| measure(&allocator, cells, threads, time);
    Row { name: A::NAME, measure: Box::new(measure) }
}

pub(crate) fn print(arguments: &Arguments) {
    for &cells in &arguments.entries {
        println!(
            "\n{cells} cells, nearly full, {DEPTH} ranges held by each thread: million claims (each with its free) per second of processor time (range-index from a hint is so many times as fast); nanoseconds per claim for which locks are held; blocked acquisitions and repeated edits per thousand claims\n"
        );
        let rows: Vec<Row> = [
            row::<Hinted<KEYS_PER_NODE>>(cells),
            row::<Lowest>(cells),
            row::<LockedBTree>(cells),
            row::<LockedRedBlack>(cells),
            row::<LockedFree>(cells),
        ]
        .into_iter()
        .filter(|row| arguments.wants(row.name))
        .collect();
        print!("| allocator |");
        for threads in &arguments.threads {
            print!(" {threads} threads |");
        }
        println!("\n| --- |{}", " ---: |".repeat(arguments.threads.len()));
        let mut best = vec![vec![Outcome::default(); arguments.threads.len()]; rows.len()];
        for _ in 0..arguments.repeats {
            for (column, &threads) in arguments.threads.iter().enumerate() {
                for (row, best) in rows.iter().zip(&mut best) {
                    let now = (row.measure)(threads, arguments.time());
                    if now.per_second > best[column].per_second {
                        best[column] = now;
                    }
                }
            }
        }
        for (row, cells) in rows.iter().zip(&best) {
            print!("| `{}` |", row.name);
            for (column, cell) in cells.iter().enumerate() {
                print!(
                    " {:.3} ({:.1}); {:.0} ns; {:.1} |",
                    cell.per_second / 1e6,
                    best[0][column].per_second / cell.per_second,
                    cell.held_ns,
                    cell.blocked
                );
            }
            println!();
        }
    }
}
