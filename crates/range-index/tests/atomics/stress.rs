//! Many threads at once on real atomics. Short by default; `RANGE_INDEX_STRESS_SECONDS` makes each
//! test longer.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use larder_range_index::{Order, RangeIndex, Request};

const THREADS: u64 = if cfg!(miri) { 3 } else { 16 };

fn time_to_run() -> Duration {
    let seconds = std::env::var("RANGE_INDEX_STRESS_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(0.7))
}

/// Calls `step` until the time is up; under an interpreter a few times.
fn repeat(mut step: impl FnMut(u64)) {
    let until = Instant::now() + time_to_run();
    for turn in 0.. {
        let over = if cfg!(miri) { turn >= 40 } else { turn % 32 == 0 && Instant::now() >= until };
        if over {
            return;
        }
        step(turn);
    }
}

/// A small generator: each thread has its own seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Tiles, sums and both walks agree when nothing is in progress.
fn assert_sound<const KEYS: usize>(index: &RangeIndex<u64, KEYS>) {
    let reader = index.reader();
    let up: Vec<_> = reader.ascending(0..u64::MAX).map(|e| e.range()).collect();
    let mut down: Vec<_> = reader.descending(0..u64::MAX).map(|e| e.range()).collect();
    down.reverse();
    assert_eq!(up, down);
    assert!(up.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert_eq!(index.len(), up.len());
    assert_eq!(index.covered(), up.iter().map(|range| range.end - range.start).sum::<u64>());
    for range in up {
        assert_eq!(reader.get(range.start).map(|e| e.range()), Some(range));
    }
}

/// Each thread owns the addresses that are its number modulo the number of threads, so it knows its
/// own entries, while its neighbours share every node with it.
fn owners_see_their_own<const KEYS: usize>(space: u64) {
    let index = RangeIndex::<u64, KEYS>::with_node_size();
    thread::scope(|scope| {
        for me in 0..THREADS {
            let index = &index;
            scope.spawn(move || {
                let mut random = Random(me + 1);
                let mut mine = vec![None; (space / THREADS) as usize];
                repeat(|turn| {
                    let slot = random.below(space / THREADS);
                    let at = (slot * THREADS + me) * 2;
                    let there = &mut mine[slot as usize];
                    match random.below(8) {
                        0..3 => {
                            let done = index.insert(at..at + 1, turn).is_ok();
                            assert_eq!(done, there.is_none());
                            there.get_or_insert(turn);
                        }
                        3..5 => {
                            let removed = index.remove(at);
                            assert_eq!(removed, there.map(|value| (at..at + 1, value)));
                            *there = None;
                        }
                        5 => {
                            assert_eq!(index.update(at, |value| value + 1), *there);
                            *there = there.map(|value| value + 1);
                        }
                        6 => {
                            let found =
                                index.reader().ascending(at..at + 1).map(|e| *e.value).next();
                            assert_eq!(found, *there);
                        }
                        _ => {
                            assert_eq!(index.get(at), there.map(|value| (at..at + 1, value)));
                        }
                    }
                });
                for (slot, there) in mine.iter().enumerate() {
                    let at = (slot as u64 * THREADS + me) * 2;
                    assert_eq!(index.get(at).map(|(_, value)| value), *there);
                }
            });
        }
    });
    assert_sound(&index);
}

#[test]
fn owners_see_their_own_in_small_nodes() {
    owners_see_their_own::<4>(if cfg!(miri) { 24 } else { 4000 });
}

#[test]
fn owners_see_their_own_in_usual_nodes() {
    owners_see_their_own::<32>(if cfg!(miri) { 24 } else { 40_000 });
}

#[test]
fn owners_see_their_own_in_a_tiny_space() {
    owners_see_their_own::<4>(if cfg!(miri) { 12 } else { 64 });
}

/// Claims never overlap: each claimed address has one owner at a time. And the only user of a hole
/// that only the largest request fits always finds it, whatever happens around it.
fn claims_exclude_each_other<const KEYS: usize>(order: fn(u64) -> Order) {
    const LARGE: u64 = 64;
    let space = if cfg!(miri) { 300 } else { 6000 };
    let index = RangeIndex::<u64, KEYS>::with_node_size();
    let owners: Vec<AtomicU64> = (0..space).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    // Two entries keep the large hole apart, and small requests stay out of it.
    let hole = space / 2..space / 2 + LARGE;
    index.insert(hole.start - 1..hole.start, 0).unwrap();
    index.insert(hole.end..hole.end + 1, 0).unwrap();
    thread::scope(|scope| {
        let (index, owners, hole, stop) = (&index, &owners, &hole, &stop);
        let workers: Vec<_> = (1..THREADS)
            .map(|me| {
                scope.spawn(move || {
                    let mut random = Random(me);
                    let mut mine = Vec::new();
                    repeat(|turn| {
                        let side =
                            if random.below(2) == 0 { 0..hole.start } else { hole.end..space };
                        let request = Request::new(1 + random.below(9))
                            .align(1 + random.below(3))
                            .within(side)
                            .order(order(random.below(space)));
                        if let Some(start) = index.claim(&request, turn) {
                            assert_eq!(start % request.align, 0);
                            assert!(request.within.contains(&start));
                            for at in start..start + request.len {
                                assert_eq!(owners[at as usize].swap(me, SeqCst), 0);
                            }
                            mine.push(start..start + request.len);
                        }
                        if mine.len() > 10 || (random.below(3) == 0 && !mine.is_empty()) {
                            let range = mine.swap_remove(random.below(mine.len() as u64) as usize);
                            for at in range.clone() {
                                assert_eq!(owners[at as usize].swap(0, SeqCst), me);
                            }
                            let removed = index.remove(range.start).map(|(range, _)| range);
                            assert_eq!(removed, Some(range));
                        }
                    });
                })
            })
            .collect();
        scope.spawn(move || {
            let mut random = Random(99);
            while !stop.load(SeqCst) {
                let request =
                    Request::new(LARGE).within(0..space).order(order(random.below(space)));
                // Around it there may be another as large, but this one there is always.
                let start = index.claim(&request, 0).expect("a hole that stays is found");
                assert_eq!(index.remove(start), Some((start..start + LARGE, 0)));
                thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, SeqCst);
    });
    assert_sound(&index);
}

#[test]
fn lowest_claims_exclude_each_other() {
    claims_exclude_each_other::<4>(|_| Order::Lowest);
}

#[test]
fn highest_claims_exclude_each_other() {
    claims_exclude_each_other::<4>(|_| Order::Highest);
}

#[test]
fn hinted_claims_exclude_each_other() {
    claims_exclude_each_other::<8>(Order::From);
}

/// Splitting inserts over each other always leave the whole stretch covered.
#[test]
fn overwriting_never_uncovers() {
    let space = if cfg!(miri) { 60 } else { 3000 };
    let index = RangeIndex::<u64, 4>::with_node_size();
    index.insert(0..space, 0).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (index, stop) = (&index, &stop);
        let writers: Vec<_> = (1..THREADS - 1)
            .map(|me| {
                scope.spawn(move || {
                    let mut random = Random(me);
                    repeat(|turn| {
                        let start = random.below(space - 1);
                        let end = (start + 1 + random.below(40)).min(space);
                        match random.below(4) {
                            0 => {
                                index.merge_at(start.max(1), |l, _| Some(*l));
                            }
                            1 => {
                                index.split_at(start, |entry| *entry.value + turn);
                            }
                            _ => index.insert_splitting(start..end, turn, |old, _| *old.value),
                        }
                    });
                })
            })
            .collect();
        for me in 0..2 {
            scope.spawn(move || {
                let mut random = Random(me + 1000);
                while !stop.load(SeqCst) {
                    let at = random.below(space);
                    let entry = index.get(at).expect("every address is covered at all times");
                    assert!(entry.0.contains(&at));
                    let first = index.first_at_or_after(at).expect("covered");
                    assert!(first.0.contains(&at));
                    thread::yield_now();
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, SeqCst);
    });
    assert_eq!(index.covered(), space);
    assert_sound(&index);
}

/// Values that are only `Send` each get a lock; then they are updated in place, while edits around
/// them copy their blocks.
#[test]
fn guarded_values_are_updated_in_place() {
    const VALUES: u64 = 8;
    let index = RangeIndex::<Arc<Mutex<Cell<u64>>>, 4>::with_node_size();
    for value in 0..VALUES {
        index.insert(value * 10..value * 10 + 1, Arc::default()).unwrap();
    }
    let updates = AtomicU64::new(0);
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (index, updates) = (&index, &updates);
            scope.spawn(move || {
                let mut random = Random(me + 1);
                repeat(|_| {
                    let at = random.below(VALUES) * 10;
                    if me % 2 == 0 {
                        let reader = index.reader();
                        let count = reader.get(at).expect("it stays").value.lock().unwrap();
                        count.set(count.get() + 1);
                        updates.fetch_add(1, SeqCst);
                    } else if index.insert(at + 1 + me % 9..at + 2 + me % 9, Arc::default()).is_ok()
                    {
                        index
                            .remove(at + 1 + me % 9)
                            .expect("only the thread that inserts it removes it");
                    }
                });
            });
        }
    });
    let reader = index.reader();
    let counts = reader.ascending(0..u64::MAX).map(|entry| entry.value.lock().unwrap().get());
    assert_eq!(counts.sum::<u64>(), updates.into_inner());
}
