//! Models of the lock protocol under shuttle: threads switch at every acquisition of a tree lock,
//! in many random schedules, with the lock-order validator on. Run with `--features shuttle`.

mod support;

use std::sync::Arc;

use larder_btree::{LiveTree, LockPolicy, Readahead, Waiting};
use larder_format::Key;
use shuttle::thread;
use support::key;
use support::space::World;

/// The work of one thread of a model.
type Work = Box<dyn FnOnce(&Arc<LiveTree>) + Send>;

/// Three such items fill a leaf of 4 KiB.
const LEN: usize = 1200;

/// A tree of two levels whose keys are the multiples of ten below `10 * count`.
fn world(policy: LockPolicy, count: u64, is_committed: bool) -> (Arc<World>, Arc<LiveTree>) {
    let world = World::with(4096, policy, 1 << 20);
    let tree = world.tree();
    for n in 0..count {
        tree.insert(key(10 * n), &[n as u8; LEN]).unwrap();
    }
    if is_committed {
        world.commit();
    }
    (Arc::new(world), tree)
}

const POLICIES: [LockPolicy; 4] = [
    LockPolicy {
        early_release: true,
        first_write_level: 0,
        fingers: true,
        waiting: Waiting::Adaptive,
    },
    LockPolicy {
        early_release: true,
        first_write_level: 0,
        fingers: false,
        waiting: Waiting::Adaptive,
    },
    LockPolicy {
        early_release: true,
        first_write_level: 1,
        fingers: true,
        waiting: Waiting::Adaptive,
    },
    LockPolicy {
        early_release: false,
        first_write_level: 1,
        fingers: false,
        waiting: Waiting::Adaptive,
    },
];

/// Explores schedules of `threads` on a tree of `count` items, then checks the tree.
fn explore(count: u64, is_committed: bool, threads: fn() -> Vec<Work>, check: fn(&Arc<LiveTree>)) {
    for policy in POLICIES {
        let model = move || {
            let (world, tree) = world(policy, count, is_committed);
            let running: Vec<_> = threads()
                .into_iter()
                .map(|work| {
                    let tree = tree.clone();
                    thread::spawn(move || work(&tree))
                })
                .collect();
            for thread in running {
                thread.join().unwrap();
            }
            world.check_alone(&tree);
            check(&tree);
        };
        let schedules = 400 * larder_testkit::effort() as usize;
        shuttle::check_random(model, schedules);
        shuttle::check_pct(model, schedules, 3);
    }
}

fn keys(tree: &Arc<LiveTree>) -> Vec<Key> {
    let mut cursor = tree.cursor(Readahead::Forward);
    let mut keys = Vec::new();
    while cursor.next().unwrap() {
        keys.extend(cursor.key());
    }
    keys
}

fn insert(n: u64) -> Work {
    Box::new(move |tree| {
        // The thread knows its path when it inserts, and others may make it outdated.
        let _ = tree.get(key(n));
        tree.insert(key(n), &[1; LEN]).unwrap();
        assert_eq!(tree.get(key(n)).unwrap(), Some(vec![1; LEN]));
    })
}

fn delete(n: u64) -> Work {
    Box::new(move |tree| {
        assert!(tree.get(key(n)).unwrap().is_some());
        assert!(tree.delete(key(n)).unwrap());
        assert_eq!(tree.get(key(n)).unwrap(), None);
    })
}

/// Looks for a key that always exists, by key and by walking.
fn find(n: u64) -> Work {
    Box::new(move |tree| {
        assert_eq!(tree.get(key(n)).unwrap().map(|data| data.len()), Some(LEN));
        assert!(keys(tree).contains(&key(n)));
        let mut cursor = tree.cursor(Readahead::Forward);
        assert!(cursor.seek_last(key(n)).unwrap());
        assert_eq!(cursor.key(), Some(key(n)));
    })
}

#[test]
fn splits_under_readers() {
    explore(
        6,
        false,
        || vec![insert(21), insert(22), insert(33), find(20), find(30)],
        |tree| assert_eq!(keys(tree).len(), 9),
    );
}

#[test]
fn copies_of_a_committed_tree_under_readers() {
    explore(
        6,
        true,
        || {
            let overwrite =
                |tree: &Arc<LiveTree>| tree.modify(key(50), |data| data.fill(9)).unwrap();
            vec![insert(1), Box::new(overwrite), find(0), find(50)]
        },
        |tree| {
            assert_eq!(keys(tree).len(), 7);
            assert_eq!(tree.get(key(50)).unwrap(), Some(vec![9; LEN]));
        },
    );
}

#[test]
fn leaves_go_away_while_others_split() {
    explore(
        7,
        true,
        || vec![delete(0), delete(10), delete(20), insert(31), insert(32), find(40)],
        |tree| assert_eq!(keys(tree), [30, 31, 32, 40, 50, 60].map(key)),
    );
}

#[test]
fn the_root_grows_and_shrinks() {
    explore(
        3,
        false,
        || {
            let churn = |tree: &Arc<LiveTree>| {
                tree.insert(key(11), &[1; LEN]).unwrap();
                assert!(tree.delete(key(11)).unwrap());
            };
            let below = |tree: &Arc<LiveTree>| {
                tree.insert(key(5), &[1; LEN]).unwrap();
                assert!(tree.delete(key(5)).unwrap());
            };
            vec![Box::new(churn), Box::new(below), find(10)]
        },
        |tree| assert_eq!(keys(tree), [0, 10, 20].map(key)),
    );
}

#[test]
fn a_new_first_key_reaches_every_ancestor() {
    explore(
        6,
        true,
        || {
            let first = |tree: &Arc<LiveTree>| tree.insert(Key::MIN, &[1; LEN]).unwrap();
            vec![Box::new(first), delete(0), insert(12), find(20)]
        },
        |tree| assert_eq!(keys(tree)[0], Key::MIN),
    );
}

/// The same insert from two threads: one of them wins.
#[test]
fn an_item_is_inserted_once() {
    explore(
        4,
        true,
        || {
            let race = |tree: &Arc<LiveTree>| drop(tree.insert(key(15), &[1; LEN]));
            vec![Box::new(race), Box::new(race), find(10)]
        },
        |tree| assert_eq!(keys(tree), [0, 10, 15, 20, 30].map(key)),
    );
}
