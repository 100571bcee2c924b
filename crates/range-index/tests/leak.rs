//! Every inserted value is dropped exactly once, after reclamation has caught up.
#![cfg(not(feature = "shuttle"))]

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use larder_range_index::{Entry, RangeIndex, Request};

/// The number of living values of a test.
type Alive = AtomicI64;

/// Counts itself, and owns memory, so that a tool that looks for leaks sees it too.
struct Counted {
    number: Box<u64>,
    alive: &'static Alive,
}

impl Counted {
    fn new(number: u64, alive: &'static Alive) -> Self {
        alive.fetch_add(1, SeqCst);
        Counted { number: Box::new(number), alive }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(*self.number, self.alive)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Makes a second drop visible.
        assert_ne!(*self.number, u64::MAX, "dropped twice");
        *self.number = u64::MAX;
        self.alive.fetch_sub(1, SeqCst);
    }
}

/// Waits until the epoch has moved far enough for all retired values to be freed.
fn wait_for(alive: &Alive, expected: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while alive.load(SeqCst) != expected as i64 {
        let now = alive.load(SeqCst);
        assert!(Instant::now() < until, "{now} values are alive, not {expected}");
        crossbeam_epoch::pin().flush();
        thread::yield_now();
    }
}

#[test]
fn all_values_are_dropped_once() {
    static ALIVE: Alive = Alive::new(0);
    let counted = |number| Counted::new(number, &ALIVE);
    let rounds = if cfg!(miri) { 30 } else { 3000 };
    let index = RangeIndex::<Counted, 4>::with_node_size();
    thread::scope(|scope| {
        for me in 0..4 {
            let index = &index;
            scope.spawn(move || {
                for turn in 0..rounds {
                    let at = (turn * 7 + me * 13) % 500;
                    match (turn + me) % 7 {
                        0 => drop(index.insert(at..at + 3, counted(at))),
                        1 => drop(index.remove(at)),
                        2 => drop(index.claim(&Request::new(2).within(0..600), counted(turn))),
                        3 => drop(index.update(at, |old| counted(*old.number + 1))),
                        4 => drop(index.insert_replacing(at..at + 9, counted(at))),
                        5 => index
                            .insert_splitting(at..at + 9, counted(at), |old, _| old.value.clone()),
                        _ => drop(index.get(at)),
                    }
                }
            });
        }
    });
    // Each value in the index is in one block.
    wait_for(&ALIVE, index.len());
    let kept = index.reader().ascending(0..u64::MAX).map(|entry| *entry.value.number).max();
    assert!(kept < Some(u64::MAX));
    drop(index);
    wait_for(&ALIVE, 0);
}

/// Counts its uses, without any lock: threads may pass it on, but not share it.
#[derive(Clone)]
struct Alone {
    looks: Cell<u64>,
    _counted: Counted,
}

/// Another thread drops the values that one thread has replaced, while a third has the index and
/// the values in it.
#[test]
fn values_that_are_only_send_go_with_the_index_and_are_dropped_elsewhere() {
    static ALIVE: Alive = Alive::new(0);
    const THREADS: u64 = 4;
    const ENTRIES: u64 = 40;
    let rounds = if cfg!(miri) { 20 } else { 500 };
    let new = || Alone { looks: Cell::new(0), _counted: Counted::new(0, &ALIVE) };
    let index = Mutex::new(RangeIndex::<Alone, 4>::with_node_size());
    let in_turn = |turn: u64| {
        let index = index.lock().unwrap();
        let at = turn * 7 % ENTRIES;
        let _ = index.insert(at..at + 1, new());
        {
            let reader = index.reader();
            let look = |entry: Entry<'_, Alone>| entry.value.looks.set(entry.value.looks.get() + 1);
            reader.ascending(0..u64::MAX).for_each(look);
        }
        if turn.is_multiple_of(3) {
            index.remove(turn * 11 % ENTRIES);
        }
    };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let in_turn = &in_turn;
            scope.spawn(move || {
                for turn in 0..rounds {
                    in_turn(turn * THREADS + me);
                    // Frees blocks that others have retired, while they edit.
                    crossbeam_epoch::pin().flush();
                }
            });
        }
    });
    // Moved, not only lent.
    let index = index.into_inner().unwrap();
    let index = thread::spawn(move || {
        let looks =
            index.reader().ascending(0..u64::MAX).map(|entry| entry.value.looks.get()).sum();
        assert!((1..=rounds * THREADS * ENTRIES).contains(&looks));
        index
    });
    let index = index.join().unwrap();
    wait_for(&ALIVE, index.len());
    drop(index);
    wait_for(&ALIVE, 0);
}
