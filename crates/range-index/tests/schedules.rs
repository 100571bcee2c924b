//! Interleavings chosen by shuttle: small programs, run under thousands of schedules each.
//! `cargo test -p larder-range-index --features shuttle --test schedules`.

use std::sync::Arc;

use larder_range_index::{Order, RangeIndex, Request};
use shuttle::thread;

type Index = RangeIndex<u64, 4>;

/// Schedules of each kind for each test; `RANGE_INDEX_SCHEDULES` asks for more.
fn runs() -> usize {
    let wanted = std::env::var("RANGE_INDEX_SCHEDULES").ok().and_then(|runs| runs.parse().ok());
    wanted.unwrap_or(1000)
}

/// Runs `test` under random schedules, and under schedules with few but well-placed switches.
fn explore(test: impl Fn() + Clone + Send + Sync + 'static) {
    shuttle::check_random(test.clone(), runs());
    shuttle::check_pct(test, runs(), 3);
}

/// An index with entries of one address at the multiples of 10 below `10 * count`.
fn tens(count: u64) -> Arc<Index> {
    let index = Index::with_node_size();
    for start in 0..count {
        index.insert(start * 10..start * 10 + 1, start).unwrap();
    }
    Arc::new(index)
}

fn starts(index: &Index) -> Vec<u64> {
    let reader = index.reader();
    let up: Vec<u64> = reader.ascending(0..u64::MAX).map(|entry| entry.start).collect();
    let mut down: Vec<u64> = reader.descending(0..u64::MAX).map(|entry| entry.start).collect();
    down.reverse();
    assert_eq!(up, down);
    assert_eq!(up.len(), index.len());
    up
}

/// Runs all, each on a thread of its own.
fn together(tasks: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = tasks.into_iter().map(thread::spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

macro_rules! together {
    ($index:ident; $($task:expr),+ $(,)?) => {
        together(vec![$({
            let $index = Arc::clone(&$index);
            Box::new(move || { $task; })
        }),+])
    };
}

#[test]
fn inserts_of_neighbours_that_split_a_node() {
    explore(|| {
        let index = tens(4);
        together!(index;
            index.insert(5..6, 0).unwrap(),
            index.insert(15..16, 0).unwrap(),
            index.insert(25..26, 0).unwrap(),
        );
        assert_eq!(starts(&index), [0, 5, 10, 15, 20, 25, 30]);
    });
}

#[test]
fn one_of_two_overlapping_inserts_wins() {
    explore(|| {
        let index = tens(4);
        let (first, second) = (Arc::clone(&index), Arc::clone(&index));
        let first = thread::spawn(move || first.insert(4..7, 1).is_ok());
        let second = thread::spawn(move || second.insert(6..9, 2).is_ok());
        let won = [first.join().unwrap(), second.join().unwrap()];
        assert!(won[0] ^ won[1]);
        assert_eq!(index.get(6).unwrap().1, if won[0] { 1 } else { 2 });
    });
}

#[test]
fn an_insert_beside_the_removal_of_a_nodes_first_entry() {
    explore(|| {
        // Two nodes, of which the second begins at 20.
        let index = tens(5);
        together!(index;
            assert!(index.remove(20).is_some()),
            index.insert(15..18, 0).unwrap(),
            index.insert(25..26, 0).unwrap(),
        );
        assert_eq!(starts(&index), [0, 10, 15, 25, 30, 40]);
    });
}

#[test]
fn removals_of_neighbours_that_empty_nodes() {
    explore(|| {
        let index = tens(9);
        together!(index;
            { index.remove(20); index.remove(40) },
            { index.remove(30); index.remove(50) },
            { index.remove(60); index.remove(10) },
        );
        assert_eq!(starts(&index), [0, 70, 80]);
    });
}

#[test]
fn removals_of_the_same_entry_succeed_once() {
    explore(|| {
        let index = tens(6);
        let remove = |index: &Arc<Index>| {
            let index = Arc::clone(index);
            thread::spawn(move || usize::from(index.remove(30).is_some()))
        };
        let removers = [remove(&index), remove(&index), remove(&index)];
        assert_eq!(removers.into_iter().map(|r| r.join().unwrap()).sum::<usize>(), 1);
        assert_eq!(starts(&index), [0, 10, 20, 40, 50]);
    });
}

#[test]
fn a_merge_of_nodes_beside_a_split_of_one() {
    explore(|| {
        let index = tens(9);
        together!(index;
            { index.remove(20); index.remove(30); index.remove(40) },
            { index.insert(5..6, 0).unwrap(); index.insert(6..7, 0).unwrap(); index.insert(7..8, 0).unwrap() },
            { index.insert(45..46, 0).unwrap(); index.insert(46..47, 0).unwrap(); index.insert(47..48, 0).unwrap() },
        );
        assert_eq!(starts(&index), [0, 5, 6, 7, 10, 45, 46, 47, 50, 60, 70, 80]);
    });
}

#[test]
fn readers_beside_unlinking_miss_nothing_that_stays() {
    explore(|| {
        let index = tens(9);
        together!(index;
            { index.remove(20); index.remove(30); index.remove(40) },
            {
                for stays in [10, 50, 80] {
                    assert_eq!(index.get(stays).map(|(range, _)| range), Some(stays..stays + 1));
                }
                let next = index.first_at_or_after(11).unwrap().0.start;
                assert!([20, 30, 40, 50].contains(&next));
                let before = index.last_at_or_before(49).unwrap().0.start;
                assert!([10, 20, 30, 40].contains(&before));
            },
            {
                let reader = index.reader();
                let seen: Vec<u64> = reader.ascending(0..100).map(|entry| entry.start).collect();
                assert!([0, 10, 50, 60, 70, 80].iter().all(|stays| seen.contains(stays)));
                let back: Vec<u64> = reader.descending(0..100).map(|entry| entry.start).collect();
                assert!([0, 10, 50, 60, 70, 80].iter().all(|stays| back.contains(stays)));
            },
        );
    });
}

#[test]
fn removed_entries_stay_removed_for_other_threads() {
    explore(|| {
        // Removing a node's first entry takes three blocks: still one step for readers.
        let index = tens(5);
        together!(index;
            index.remove(20),
            {
                if index.get(20).is_none() {
                    assert_eq!(index.get(20), None);
                    assert_eq!(index.first_at_or_after(11).unwrap().0, 30..31);
                }
            },
        );
    });
}

#[test]
fn claims_of_the_same_hole() {
    explore(|| {
        let index = Index::with_node_size();
        for (start, end) in [(0, 4), (8, 10), (12, 20), (20, 30), (34, 40), (40, 50)] {
            index.insert(start..end, 0).unwrap();
        }
        let index = Arc::new(index);
        let claim = |len, order| {
            let index = Arc::clone(&index);
            let request = Request::new(len).within(0..50).order(order);
            thread::spawn(move || index.claim(&request, 1))
        };
        let claims = [claim(4, Order::Lowest), claim(4, Order::Highest), claim(4, Order::Lowest)];
        let mut claims = claims.map(|claim| claim.join().unwrap());
        claims.sort_unstable();
        assert_eq!(claims, [None, Some(4), Some(30)], "two holes for three");
        assert_eq!(index.claim(&Request::new(2).within(0..50), 1), Some(10));
        assert_eq!(index.covered(), 50);
    });
}

#[test]
fn a_claim_finds_the_hole_that_stays() {
    // While entries around it come and go, so that the hole moves from node to node.
    for order in [Order::Lowest, Order::Highest] {
        explore(move || {
            let index = Index::with_node_size();
            for start in (0..10).map(|n| n * 10) {
                // The hole is at 52..60; the others have one address each.
                let end = if start == 50 { 52 } else { start + 9 };
                index.insert(start..end, 0).unwrap();
            }
            let index = Arc::new(index);
            let request = Request::new(8).within(0..100).order(order);
            together!(index;
                { index.remove(40); index.remove(30); index.insert(40..49, 0).unwrap(); },
                if index.insert(59..60, 1).is_ok() { index.remove(59).unwrap(); },
                { index.remove(60); index.insert(60..61, 0).unwrap(); index.insert(62..63, 0).unwrap(); },
                { index.insert(9..10, 0).unwrap(); index.insert(19..20, 0).unwrap(); },
            );
            assert_eq!(index.claim(&Request::new(8).within(52..60), 0), Some(52));
            index.remove(52).unwrap();
            // Bounds have been lowered by this search and are raised again by that removal.
            together!(index;
                assert!(index.claim(&request, 7).is_some()),
                { index.remove(10); index.remove(20); },
            );
        });
    }
}

#[test]
fn a_hole_that_stays_is_found_while_bounds_go_up_and_down() {
    for order in [Order::Lowest, Order::Highest] {
        explore(move || {
            let index = Index::with_node_size();
            for start in (0..12).map(|n| n * 10) {
                index.insert(start..start + 9, start).unwrap();
            }
            // The large hole is before 70, in whichever node that is.
            index.remove(60).unwrap();
            let index = Arc::new(index);
            let request = Request::new(8).within(0..119).order(order);
            together!(index;
                // Another thread may have claimed the entries that they removed.
                { index.remove(50); let _ = index.insert(50..59, 0); },
                { index.remove(70); let _ = index.insert(70..79, 0); },
                {
                    let first = index.claim(&request, 1).expect("it is there all the time");
                    index.remove(first).unwrap();
                    assert!(index.claim(&request, 1).is_some());
                },
            );
        });
    }
}

#[test]
fn entries_split_meanwhile_can_be_removed() {
    explore(|| {
        // Some entry is the first of a tile that is not the first.
        let index = Index::with_node_size();
        (0..6).for_each(|start| index.insert(start * 10..start * 10 + 4, start).unwrap());
        let index = Arc::new(index);
        together!(index;
            (3..6).for_each(|start| {
                index.insert_splitting(start * 10 + 1..start * 10 + 4, 99, |old, _| *old.value);
            }),
            (3..6).for_each(|start| {
                assert!(index.remove(start * 10 + 2).is_some(), "something always covers it");
            }),
        );
    });
}

#[test]
fn a_thread_finds_the_hole_that_it_freed() {
    explore(|| {
        let index = Index::with_node_size();
        for start in 0..12 {
            index.insert(start * 4..start * 4 + 4, 0).unwrap();
        }
        // Lowers every bound.
        let request = Request::new(4).within(0..48);
        assert_eq!(index.claim(&request, 0), None);
        let index = Arc::new(index);
        let turn = |at| {
            let (index, request) = (Arc::clone(&index), request.clone());
            thread::spawn(move || {
                index.remove(at).unwrap();
                index.claim(&request, 1).expect("as many are freed as are claimed");
            })
        };
        for thread in [turn(8), turn(12), turn(32)] {
            thread.join().unwrap();
        }
        assert_eq!(index.covered(), 48);
    });
}

#[test]
fn a_hole_made_where_a_tile_has_just_moved_is_found() {
    // Three nodes; the second has one entry and the least height, the third has more links. Two of
    // these base addresses give such heights, which are drawn by lot.
    for base in [0, 100, 600] {
        explore(move || {
            let index = RangeIndex::<u64, 8>::with_node_size();
            for start in (base..base + 56).step_by(4) {
                index.insert(start..start + 4, 0).unwrap();
            }
            for (start, end) in [(56, 58), (58, 60), (60, 64), (64, 68), (68, 72)] {
                index.insert(base + start..base + end, 0).unwrap();
            }
            for start in (base + 32..base + 56).step_by(4) {
                index.remove(start).unwrap();
            }
            index.resize(base + 28, base + 28..base + 56).unwrap();
            // Lowers every bound.
            let request = Request::new(4).within(base..base + 72);
            assert_eq!(index.claim(&request, 0), None);
            let index = Arc::new(index);
            together!(index;
                // Takes the first entry of the third node, by way of the second, and others with
                // it.
                index.remove(base + 56).unwrap(),
                {
                    index.remove(base + 60).unwrap();
                    let request = Request::new(4).within(base..base + 72);
                    assert_eq!(index.claim(&request, 0), Some(base + 60));
                },
            );
        });
    }
}

#[test]
fn a_replacing_insert_over_several_nodes_is_one_step() {
    explore(|| {
        let index = tens(9);
        together!(index;
            index.insert_splitting(15..65, 99, |entry, _| *entry.value),
            {
                // Seen in this order, no old entry can be seen after the new one.
                let right_is_new = index.get(60).unwrap().1 >= 99;
                let left_is_new = index.get(20).unwrap().1 >= 99;
                assert!(!right_is_new || left_is_new);
            },
            { index.update(40, |value| value + 1); },
        );
        assert_eq!(starts(&index), [0, 10, 15, 70, 80]);
    });
}

#[test]
fn a_resize_across_a_tile_beside_an_insert() {
    explore(|| {
        let index = tens(6);
        let (resize, insert) = (Arc::clone(&index), Arc::clone(&index));
        let resize = thread::spawn(move || resize.resize(20, 15..21).is_ok());
        let insert = thread::spawn(move || insert.insert(16..18, 7).is_ok());
        let won = [resize.join().unwrap(), insert.join().unwrap()];
        assert!(won[0] ^ won[1]);
    });
}
