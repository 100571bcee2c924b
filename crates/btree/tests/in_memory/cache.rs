//! The cache: bounded, shared, and each block is read once, however many threads request it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use larder_btree::{BlockCache, BlockStore, Expected, Readahead, StoreError, Tree};
use larder_format::Logical;
use parking_lot::Mutex;

use crate::support::{self, Built, build, items};

/// A store that counts calls, records readahead hints, and delays reads on demand.
struct Watched {
    built: Built,
    reads: AtomicU64,
    ahead: Mutex<Vec<(Logical, u64)>>,
    gate: Option<Barrier>,
}

impl Watched {
    fn new(built: Built) -> Self {
        Self { built, reads: AtomicU64::new(0), ahead: Mutex::default(), gate: None }
    }

    fn blocks_asked_for(&self) -> u64 {
        self.ahead.lock().iter().map(|(_, len)| len / self.nodesize() as u64).sum()
    }
}

impl BlockStore for Watched {
    fn nodesize(&self) -> usize {
        self.built.store.nodesize()
    }

    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.wait();
        }
        self.built.store.read(expected, buf)
    }

    fn readahead(&self, logical: Logical, len_bytes: u64) {
        self.ahead.lock().push((logical, len_bytes));
    }
}

fn tree_over(store: &Arc<Watched>, limit_bytes: usize) -> Tree {
    Tree::new(Arc::new(BlockCache::new(store.clone(), limit_bytes)), store.built.root)
}

#[test]
fn threads_that_miss_the_same_block_read_it_once() {
    let mut watched = Watched::new(build(4096, 100, &items(50, 0)));
    watched.gate = Some(Barrier::new(2));
    let store = Arc::new(watched);
    let tree = tree_over(&store, 1 << 20);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| tree.root_block().unwrap());
        }
        // The reader passes the gate only once the other three wait for it.
        while tree.cache().stats().read_waits < 3 {
            std::thread::yield_now();
        }
        store.gate.as_ref().unwrap().wait();
    });
    assert_eq!(store.reads.load(Ordering::SeqCst), 1);
    let stats = tree.cache().stats();
    assert_eq!((stats.misses, stats.hits, stats.read_waits), (1, 3, 3));
}

#[test]
fn a_failed_read_leaves_nothing_in_the_cache() {
    let built = build(4096, 100, &items(50, 0));
    let tree = built.tree();
    built.store.damage(built.root.logical, |bytes| bytes[100] ^= 1);
    assert!(tree.root_block().is_err());
    assert_eq!(tree.cache().stats().cached_bytes, 0);
    built.store.damage(built.root.logical, |bytes| bytes[100] ^= 1);
    assert!(tree.root_block().is_ok());
}

#[test]
fn the_cache_stays_within_its_limit_and_held_blocks_stay_whole() {
    let items = items(5000, 10);
    let built = build(4096, 10, &items);
    let tree = built.tree_with_cache(0);
    let held: Vec<_> = tree.range(.., Readahead::None).map(Result::unwrap).step_by(10).collect();
    let stats = tree.cache().stats();
    assert!(stats.cached_bytes <= 64 * 4096, "{stats:?}");
    assert!(stats.evictions > 300, "{stats:?}");
    assert_eq!(stats.misses, built.levels.iter().map(Vec::len).sum::<usize>() as u64);
    for (held, item) in held.iter().zip(items.iter().step_by(10)) {
        assert_eq!((held.key(), held.data()), (item.0, &item.1[..]));
    }
}

#[test]
fn a_long_walk_does_not_evict_blocks_in_frequent_use() {
    let items = items(20000, 0);
    let built = build(4096, 20, &items);
    let tree = built.tree_with_cache(256 * 4096);
    let favourites: Vec<_> = items.iter().step_by(1000).map(|item| item.0).collect();
    let visit = || favourites.iter().for_each(|&key| assert!(tree.get(key).unwrap().is_some()));
    let mut cursor = tree.cursor(Readahead::None);
    while cursor.next_leaf().unwrap() {
        visit();
    }
    let before = tree.cache().stats();
    visit();
    let after = tree.cache().stats();
    assert_eq!(after.misses, before.misses, "{after:?}");
}

fn walk_all(tree: &Tree, readahead: Readahead) {
    let mut cursor = tree.cursor(readahead);
    match readahead {
        Readahead::Back => while cursor.prev_leaf().unwrap() {},
        _ => while cursor.next_leaf().unwrap() {},
    }
}

#[test]
fn readahead_asks_for_each_sibling_once_and_for_adjacent_ones_together() {
    let blocks = |built: &Built| built.levels.iter().map(Vec::len).sum::<usize>() as u64;
    for mode in [Readahead::Forward, Readahead::Back, Readahead::ForwardAlways] {
        let store = Arc::new(Watched::new(build(4096, 50, &items(20000, 0))));
        let tree = tree_over(&store, 1 << 24);
        walk_all(&tree, mode);
        let stats = tree.cache().stats();
        assert_eq!(stats.misses, blocks(&store.built));
        assert_eq!(stats.readahead_blocks, store.blocks_asked_for());
        // All but the root and the first child of each parent.
        let parents: usize = store.built.levels[1..].iter().map(Vec::len).sum();
        assert_eq!(stats.readahead_blocks, blocks(&store.built) - 1 - parents as u64, "{mode:?}");
        assert_eq!(stats.readahead_used, stats.readahead_blocks, "{mode:?}");
        assert!(stats.readahead_requests * 5 < stats.readahead_blocks, "{mode:?} {stats:?}");
    }
    let store = Arc::new(Watched::new(build(4096, 50, &items(20000, 0))));
    walk_all(&tree_over(&store, 1 << 24), Readahead::None);
    assert_eq!(store.blocks_asked_for(), 0);
}

/// A cursor of a tree that may change has no path to follow, and reads ahead all the same.
#[test]
fn live_cursors_read_ahead_too() {
    for mode in [Readahead::Forward, Readahead::Back, Readahead::None] {
        let store = Arc::new(Watched::new(build(4096, 50, &items(20000, 0))));
        // With space for all: no prefetched block is evicted before a reader uses it.
        let room = 1 << 24;
        let forest = support::space::forest_over(store.clone(), support::GENERATION + 1, room);
        let mut cursor = forest.open_tree(store.built.root, 0).cursor(mode);
        match mode {
            Readahead::Back => while cursor.prev_leaf().unwrap() {},
            _ => while cursor.next_leaf().unwrap() {},
        }
        let stats = forest.cache().stats();
        assert_eq!(stats.readahead_blocks, store.blocks_asked_for());
        if mode == Readahead::None {
            assert_eq!(stats.readahead_blocks, 0);
        } else {
            let leaves = store.built.levels[0].len() as u64;
            let parents = store.built.levels[1].len() as u64;
            assert!(stats.readahead_used >= leaves - parents, "{mode:?} {stats:?}");
            assert!(stats.readahead_requests * 4 < stats.readahead_blocks, "{mode:?} {stats:?}");
        }
    }
}

/// Every second leaf is in memory. A walk that only reacts to misses stops reading ahead at each;
/// one that will visit all leaves does not.
#[test]
fn forward_always_keeps_reading_ahead_past_blocks_in_memory() {
    let asked = |mode| {
        let store = Arc::new(Watched::new(build(4096, 50, &items(2500, 0))));
        let tree = tree_over(&store, 1 << 24);
        for (first, _) in store.built.levels[0].iter().take(25) {
            tree.get(*first).unwrap();
        }
        let mut cursor = tree.cursor(mode);
        for _ in 0..10 {
            cursor.next_leaf().unwrap();
        }
        store.blocks_asked_for()
    };
    assert_eq!(asked(Readahead::Forward), 0);
    assert_eq!(asked(Readahead::ForwardAlways), 25);
}

#[test]
fn many_threads_read_one_tree_through_a_small_cache() {
    let items = items(3000, 30);
    let built = build(4096, 12, &items);
    let tree = built.tree_with_cache(80 * 4096);
    std::thread::scope(|scope| {
        for thread in 0..6_usize {
            let (tree, items) = (&tree, &items);
            scope.spawn(move || {
                for turn in 0..2000 {
                    let item = &items[(turn * 7919 + thread * 1013) % items.len()];
                    assert_eq!(tree.get(item.0).unwrap().as_deref(), Some(&item.1[..]));
                }
                let walked = tree.range(.., Readahead::Forward).map(Result::unwrap);
                assert!(walked.map(|i| i.key()).eq(items.iter().map(|i| i.0)));
            });
        }
    });
    assert!(tree.cache().stats().cached_bytes <= 80 * 4096);
}
