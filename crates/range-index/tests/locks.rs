//! Range locks: who excludes whom, in which order, and what a deadline does.
#![cfg(not(feature = "shuttle"))]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use larder_range_index::{Mode, RangeLock};
use proptest::prelude::*;

#[test]
fn shared_locks_overlap_and_exclusive_ones_do_not() {
    let lock = RangeLock::new();
    let first = lock.try_lock(0..10, Mode::Shared).unwrap();
    let second = lock.try_lock(5..15, Mode::Shared).unwrap();
    assert!(lock.try_lock(9..20, Mode::Exclusive).is_none());
    let third = lock.try_lock(15..20, Mode::Exclusive).unwrap();
    assert!(lock.try_lock(19..21, Mode::Shared).is_none());
    drop(first);
    assert!(lock.try_lock(0..6, Mode::Exclusive).is_none(), "the second holds 5");
    let fourth = lock.try_lock(0..5, Mode::Exclusive).unwrap();
    drop((second, third, fourth));
    let all = lock.try_lock(0..u64::MAX, Mode::Exclusive).unwrap();
    assert_eq!((all.range(), all.mode()), (0..u64::MAX, Mode::Exclusive));
}

#[test]
fn a_request_does_not_overtake_one_that_it_conflicts_with() {
    let lock = RangeLock::new();
    let (sender, order) = mpsc::channel();
    let shared = lock.lock(0..10, Mode::Shared);
    thread::scope(|scope| {
        let writer = sender.clone();
        scope.spawn({
            let lock = &lock;
            move || {
                let guard = lock.lock(5..15, Mode::Exclusive);
                writer.send("writer").unwrap();
                drop(guard);
            }
        });
        // The writer queues behind the reader: a try that conflicts with the writer alone says so.
        while lock.try_lock(12..13, Mode::Shared).is_some() {
            thread::yield_now();
        }
        assert!(lock.try_lock(6..7, Mode::Shared).is_none(), "a reader would overtake the writer");
        drop(lock.try_lock(20..30, Mode::Exclusive).expect("others are not concerned"));
        let reader = sender.clone();
        scope.spawn({
            let lock = &lock;
            move || {
                let guard = lock.lock(6..7, Mode::Shared);
                reader.send("reader").unwrap();
                drop(guard);
            }
        });
        thread::sleep(Duration::from_millis(20));
        assert!(order.try_recv().is_err());
        drop(shared);
        assert_eq!(order.recv().unwrap(), "writer");
        assert_eq!(order.recv().unwrap(), "reader");
    });
}

#[test]
fn a_deadline_ends_the_wait_and_lets_others_pass() {
    let lock = RangeLock::new();
    let shared = lock.lock(0..10, Mode::Shared);
    assert!(lock.lock_for(5..6, Mode::Exclusive, Duration::from_millis(10)).is_none());
    // The request that gave up is not in the way of one that it would have conflicted with.
    drop(lock.try_lock(5..6, Mode::Shared).unwrap());
    drop(shared);
    assert!(lock.lock_for(5..6, Mode::Exclusive, Duration::from_secs(60)).is_some());
}

#[test]
fn giving_up_wakes_who_waited_behind() {
    let lock = RangeLock::new();
    let gave_up = AtomicBool::new(false);
    let shared = lock.lock(0..10, Mode::Shared);
    thread::scope(|scope| {
        scope.spawn(|| {
            let writer = lock.lock_for(0..10, Mode::Exclusive, Duration::from_millis(50));
            assert!(writer.is_none());
            gave_up.store(true, SeqCst);
        });
        while lock.try_lock(0..1, Mode::Shared).is_some() && !gave_up.load(SeqCst) {
            thread::yield_now();
        }
        // Waits behind the writer, which never gets its turn; would hang if nobody woke it.
        drop(lock.lock(0..1, Mode::Shared));
    });
    drop(shared);
}

#[test]
fn sixteen_threads_never_break_the_rules() {
    const CELLS: u64 = 64;
    let lock = RangeLock::new();
    // Below zero: one writer. Above: so many readers.
    let cells: Vec<AtomicI64> = (0..CELLS).map(|_| AtomicI64::new(0)).collect();
    let turns = AtomicUsize::new(0);
    thread::scope(|scope| {
        for me in 0..if cfg!(miri) { 3 } else { 16u64 } {
            let (lock, cells, turns) = (&lock, &cells, &turns);
            scope.spawn(move || {
                let mut seed = me + 1;
                let mut below = |limit: u64| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 33) % limit
                };
                for _ in 0..if cfg!(miri) { 20 } else { 1500 } {
                    let start = below(CELLS);
                    let range = start..(start + 1 + below(12)).min(CELLS);
                    let mode = if below(3) == 0 { Mode::Exclusive } else { Mode::Shared };
                    let guard = match below(3) {
                        0 => lock.try_lock(range.clone(), mode),
                        1 => lock.lock_for(range.clone(), mode, Duration::from_micros(below(200))),
                        _ => Some(lock.lock(range.clone(), mode)),
                    };
                    let Some(guard) = guard else { continue };
                    turns.fetch_add(1, SeqCst);
                    let step = if mode == Mode::Exclusive { -1 } else { 1 };
                    for cell in range.clone() {
                        let before = cells[cell as usize].fetch_add(step, SeqCst);
                        assert!(if step < 0 { before == 0 } else { before >= 0 });
                    }
                    for cell in range {
                        cells[cell as usize].fetch_sub(step, SeqCst);
                    }
                    drop(guard);
                }
            });
        }
    });
    assert!(turns.load(SeqCst) > 0);
    let all = lock.try_lock(0..u64::MAX, Mode::Exclusive);
    assert!(all.is_some(), "nothing is held and nobody waits");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// One thread: a try succeeds exactly when no guard that is alive conflicts.
    #[test]
    fn tries_agree_with_a_list_of_guards(
        steps in prop::collection::vec((0u64..400, 1u64..60, 0u8..4, 0usize..64), 1..150)
    ) {
        let lock = RangeLock::new();
        let mut guards = Vec::new();
        for (start, len, kind, victim) in steps {
            if kind == 0 && !guards.is_empty() {
                drop(guards.swap_remove(victim % guards.len()));
                continue;
            }
            let range = start..start + len;
            let mode = if kind == 1 { Mode::Exclusive } else { Mode::Shared };
            let conflict = guards.iter().any(|(other, held): &(std::ops::Range<u64>, _)| {
                let held: &larder_range_index::RangeLockGuard<'_> = held;
                other.start < range.end && range.start < other.end
                    && (mode == Mode::Exclusive || held.mode() == Mode::Exclusive)
            });
            let guard = lock.try_lock(range.clone(), mode);
            prop_assert_eq!(guard.is_none(), conflict);
            guards.extend(guard.map(|guard| (range, guard)));
        }
        drop(guards);
        prop_assert!(lock.try_lock(0..u64::MAX, Mode::Exclusive).is_some());
    }
}
