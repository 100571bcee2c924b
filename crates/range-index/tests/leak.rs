//! Every value that goes in is dropped exactly once, after reclamation has caught up.
#![cfg(not(feature = "shuttle"))]

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use larder_range_index::{RangeIndex, Request};

static ALIVE: AtomicI64 = AtomicI64::new(0);

/// Counts itself, and owns memory, so that a tool that looks for leaks sees it too.
struct Counted(Box<u64>);

impl Counted {
    fn new(number: u64) -> Self {
        ALIVE.fetch_add(1, SeqCst);
        Counted(Box::new(number))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(*self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Makes a second drop visible.
        assert_ne!(*self.0, u64::MAX, "dropped twice");
        *self.0 = u64::MAX;
        ALIVE.fetch_sub(1, SeqCst);
    }
}

/// Waits until the epoch has moved far enough for all that was retired to be freed.
fn wait_for(alive: i64) {
    let until = Instant::now() + Duration::from_secs(60);
    while ALIVE.load(SeqCst) != alive {
        assert!(Instant::now() < until, "{} values are alive, not {alive}", ALIVE.load(SeqCst));
        crossbeam_epoch::pin().flush();
        thread::yield_now();
    }
}

#[test]
fn all_values_are_dropped_once() {
    let rounds = if cfg!(miri) { 30 } else { 3000 };
    let index = RangeIndex::<Counted, 4>::with_node_size();
    thread::scope(|scope| {
        for me in 0..4 {
            let index = &index;
            scope.spawn(move || {
                for turn in 0..rounds {
                    let at = (turn * 7 + me * 13) % 500;
                    match (turn + me) % 7 {
                        0 => drop(index.insert(at..at + 3, Counted::new(at))),
                        1 => drop(index.remove(at)),
                        2 => drop(index.claim(&Request::new(2).within(0..600), Counted::new(turn))),
                        3 => drop(index.update(at, |old| Counted::new(*old.0 + 1))),
                        4 => drop(index.insert_replacing(at..at + 9, Counted::new(at))),
                        5 => index.insert_splitting(at..at + 9, Counted::new(at), |old, _| {
                            old.value.clone()
                        }),
                        _ => drop(index.get(at)),
                    }
                }
            });
        }
    });
    // What is in the index is in one block each.
    wait_for(index.len() as i64);
    let kept = index.reader().ascending(0..u64::MAX).map(|entry| *entry.value.0).max();
    assert!(kept < Some(u64::MAX));
    drop(index);
    wait_for(0);
}
