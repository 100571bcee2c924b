//! Many threads change one tree, with the lock-order validator on (these are debug builds), while
//! commits freeze and write it and readers walk the committed trees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_btree::{LiveTree, LockPolicy, Readahead, TreeRoot, Waiting};
use larder_format::Key;
use parking_lot::{Mutex, RwLock};

use crate::support::space::World;
use crate::support::{self, key};

type Model = BTreeMap<Key, Vec<u8>>;

/// A small generator: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The items of one thread in the tree: keys with its own remainder, so that threads share leaves
/// but not keys.
struct Worker<'w> {
    tree: &'w Arc<LiveTree>,
    numbers: Numbers,
    remainder: u64,
    threads: u64,
    model: Model,
}

impl Worker<'_> {
    fn any_key(&mut self) -> Key {
        key(self.numbers.below(600) * self.threads + self.remainder)
    }

    fn step(&mut self) {
        let at = self.any_key();
        match self.numbers.below(11) {
            0..=2 => self.put(at),
            3 => self.insert_batch(at),
            4 | 5 => {
                let removed = self.tree.delete(at).unwrap();
                assert_eq!(removed, self.model.remove(&at).is_some());
            }
            6 => self.extend(at),
            7 if self.model.contains_key(&at) => {
                self.tree.modify(at, |data| data.fill(1)).unwrap();
                self.model.get_mut(&at).unwrap().fill(1);
            }
            8 => self.look_around(at),
            9 => self.replace_batch(at),
            _ => assert_eq!(self.tree.get(at).unwrap(), self.model.get(&at).cloned()),
        }
    }

    fn put(&mut self, at: Key) {
        let data = vec![self.remainder as u8; self.numbers.below(300) as usize];
        self.tree.put(at, &data).unwrap();
        self.model.insert(at, data);
    }

    fn insert_batch(&mut self, at: Key) {
        let first = at.objectid * 64;
        let keys = (first..first + 600).map(key);
        let mine = |k: &Key| {
            let number =
                (k.objectid - 256) * 64 + (u64::from(k.item_type.0) - 1) * 16 + k.offset / 3;
            number % self.threads == self.remainder && !self.model.contains_key(k)
        };
        let items: Vec<_> = keys.filter(mine).take(20).map(|k| (k, vec![9; 40])).collect();
        let borrowed: Vec<_> = items.iter().map(|(k, data)| (*k, &data[..])).collect();
        self.tree.insert_batch(&borrowed).unwrap();
        self.model.extend(items);
    }

    fn replace_batch(&mut self, at: Key) {
        let len = self.numbers.below(120) as usize;
        let items: Vec<_> =
            self.model.range(at..).take(20).map(|(k, _)| (*k, vec![3; len])).collect();
        let borrowed: Vec<_> = items.iter().map(|(k, data)| (*k, &data[..])).collect();
        self.tree.replace_batch(&borrowed).unwrap();
        self.model.extend(items);
    }

    fn extend(&mut self, at: Key) {
        match self.model.get_mut(&at) {
            Some(data) if data.len() < 1500 => {
                self.tree.extend(at, &[5; 200]).unwrap();
                data.extend([5; 200]);
            }
            Some(data) => {
                self.tree.truncate(at, 3, larder_btree::Keep::Front).unwrap();
                data.truncate(3);
            }
            None => assert!(self.tree.extend(at, &[5]).is_err()),
        }
    }

    /// Walks on from a key: all items of this thread must be there, in order, and no others of it.
    fn look_around(&self, at: Key) {
        let mut cursor = self.tree.cursor(Readahead::Forward);
        let mut before = None;
        let mut more = cursor.seek(at).unwrap();
        let last = key(600 * self.threads);
        let mut mine = self.model.range(at..);
        while more {
            let (found, data) = cursor.item().unwrap();
            assert!(before < Some(found) && found >= at);
            before = Some(found);
            if let Some(expected) = self.model.get(&found) {
                assert_eq!(mine.next().map(|(k, _)| *k), Some(found));
                assert_eq!(data, &expected[..]);
            }
            if found > last {
                break;
            }
            more = cursor.next().unwrap();
        }
        assert_eq!(mine.next().filter(|_| !more), None);
    }
}

/// Runs `threads` threads of `steps` steps with commits in between, and checks all committed items
/// while the tree goes on changing.
fn storm(nodesize: usize, policy: LockPolicy, threads: u64, steps: u64, cache_bytes: usize) {
    let steps = steps * larder_testkit::effort();
    let world = World::with(nodesize, policy, cache_bytes);
    let tree = world.tree();
    // Open for a step, closed for a freeze.
    let door = RwLock::new(());
    let models: Vec<_> = (0..threads).map(|_| Mutex::new(Model::new())).collect();
    let done = AtomicBool::new(false);
    let committed: Mutex<Vec<(TreeRoot, Model)>> = Mutex::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|remainder| {
                let (tree, models, door) = (&tree, &models, &door);
                scope.spawn(move || {
                    let numbers = Numbers(0x9e37_79b9 + remainder);
                    let model = Model::new();
                    let mut worker = Worker { tree, numbers, remainder, threads, model };
                    for _ in 0..steps {
                        let _open = door.read();
                        worker.step();
                        if worker.numbers.below(16) == 0 {
                            models[remainder as usize].lock().clone_from(&worker.model);
                        }
                    }
                    *models[remainder as usize].lock() = worker.model;
                })
            })
            .collect();
        let commits = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                commit(&world, &tree, &door, &committed);
            }
        });
        let readers = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let some = committed.lock().first().cloned();
                if let Some((root, items)) = some {
                    assert_committed(&world, root, &items);
                }
                std::thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        commits.join().unwrap();
        readers.join().unwrap();
    });
    let all: Model = models.into_iter().flat_map(Mutex::into_inner).collect();
    assert_eq!(world.check_alone(&tree).items, all.len() as u64);
    world.commit();
    assert_committed(&world, tree.root(), &all);
    for (root, items) in committed.into_inner() {
        assert_committed(&world, root, &items);
    }
}

/// Freezes with the door closed, records the tree's items then, and writes with the door open.
fn commit(
    world: &World,
    tree: &Arc<LiveTree>,
    door: &RwLock<()>,
    committed: &Mutex<Vec<(TreeRoot, Model)>>,
) {
    let (set, root, items) = {
        let _closed = door.write();
        let mut items = Model::new();
        let mut cursor = tree.cursor(Readahead::Forward);
        while cursor.next().unwrap() {
            let (key, data) = cursor.item().unwrap();
            items.insert(key, data.to_vec());
        }
        (world.forest.freeze(), tree.root(), items)
    };
    for index in 0..set.len() {
        world.store.write(set.seal(index, larder_format::ChecksumType::Crc32c).unwrap().bytes());
        std::thread::yield_now();
    }
    set.finish();
    let mut committed = committed.lock();
    if committed.len() < 8 {
        committed.push((root, items));
    }
}

fn assert_committed(world: &World, root: TreeRoot, items: &Model) {
    let found = world.committed(root).range(.., Readahead::Forward).map(Result::unwrap);
    assert!(found.map(|i| (i.key(), i.data().to_vec())).eq(items.clone()));
}

/// The way to take locks that the ablations compare with.
fn from_level_1(early_release: bool) -> LockPolicy {
    LockPolicy { early_release, first_write_level: 1, fingers: false, ..LockPolicy::default() }
}

#[test]
fn a_storm_on_small_nodes() {
    storm(4096, LockPolicy::default(), 8, 1500, 1 << 24);
}

#[test]
fn a_storm_that_reads_blocks_back_all_the_time() {
    storm(4096, LockPolicy::default(), 4, 1000, 0);
}

#[test]
fn a_storm_on_large_nodes() {
    storm(65536, LockPolicy::default(), 4, 600, 1 << 26);
}

#[test]
fn a_storm_locked_from_level_1() {
    storm(4096, from_level_1(true), 8, 800, 1 << 24);
    storm(4096, from_level_1(false), 8, 800, 1 << 24);
}

#[test]
fn a_storm_of_threads_that_spin_or_sleep() {
    for waiting in [Waiting::Spinning, Waiting::Sleeping] {
        storm(4096, LockPolicy { waiting, ..from_level_1(true) }, 8, 400, 1 << 24);
    }
}

/// Threads that append to one tree at its end, as creating files does, and others that take it down
/// from its beginning: the root grows and shrinks under them.
#[test]
fn a_tree_that_grows_at_one_end_and_shrinks_at_the_other() {
    let world = World::new(4096);
    let tree = world.tree();
    let threads = 4_u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let tree = &tree;
            scope.spawn(move || {
                let mine = |n: u64| key(n * threads + thread);
                for n in 0..4000 {
                    tree.insert(mine(n), &[thread as u8; 50]).unwrap();
                    if n >= 50 {
                        assert!(tree.delete(mine(n - 50)).unwrap());
                    }
                }
            });
        }
    });
    let shape = world.check_alone(&tree);
    assert_eq!(shape.items, 50 * threads);
    tree.delete_range(Key::MIN..=Key::MAX).unwrap();
    assert_eq!(world.check_alone(&tree).blocks, [1]);
}

/// A snapshot and its source share unchanged blocks, and neither sees the other's changes, in the
/// same transaction and in later ones.
#[test]
fn a_snapshot_stays_as_it_was() {
    let world = World::new(4096);
    world.space.keeps_replaced.store(true, Ordering::SeqCst);
    let source = world.tree();
    for n in 0..3000 {
        source.insert(key(n), &[1; 20]).unwrap();
    }
    for early in [false, true] {
        if !early {
            world.commit();
        }
        let blocks = world.space.in_use.lock().len();
        let snapshot = world.forest.snapshot_tree(&source, 300 + u64::from(early)).unwrap();
        assert_eq!(world.space.in_use.lock().len(), blocks + 1, "a snapshot is one block");
        let before = contents(&snapshot);
        assert_eq!(before, contents(&source));
        source.delete_range(key(0)..=key(1000)).unwrap();
        source.put(key(2000), &[3; 30]).unwrap();
        assert_eq!(contents(&snapshot), before);
        let changed = contents(&source);
        snapshot.put(key(1500), b"mine").unwrap();
        snapshot.delete_range(key(2000)..=key(9000)).unwrap();
        assert_eq!(contents(&source), changed);
        world.commit();
        assert_eq!(contents(&source), changed);
        source.shape().unwrap();
        snapshot.shape().unwrap();
        for n in 0..1001 {
            source.put(key(n), &[8; 10]).unwrap();
        }
    }
}

fn contents(tree: &Arc<LiveTree>) -> Model {
    let mut items = Model::new();
    let mut cursor = tree.cursor(Readahead::Forward);
    while cursor.next().unwrap() {
        let (key, data) = cursor.item().unwrap();
        items.insert(key, data.to_vec());
    }
    items
}

/// Blocks that are written while their transaction runs, as a log tree's are, are copied before
/// they change again.
#[test]
fn blocks_written_early_are_not_changed_in_place() {
    let world = World::new(4096);
    let log = world.forest.create_unlisted_tree(support::TREE).unwrap();
    for n in 0..500 {
        log.insert(key(n), &[1; 20]).unwrap();
    }
    let set = world.forest.write_unlisted();
    for index in 0..set.len() {
        let block = set.seal(index, larder_format::ChecksumType::Crc32c).unwrap();
        world.store.write(block.bytes());
    }
    let (root, before) = (log.root(), contents(&log));
    for n in 0..500 {
        log.put(key(n), &[2; 30]).unwrap();
    }
    set.finish();
    for n in 0..500 {
        log.put(key(n), &[3; 10]).unwrap();
    }
    assert_committed(&world, root, &before);
    assert!(contents(&log).values().all(|data| *data == [3; 10]));
    assert_eq!(log.shape().unwrap().items, 500);
}

/// A finger is of no use once no thread may change its node in place: the node's copy takes over
/// without a lock on the node.
#[test]
fn fingers_do_not_hide_a_copy() {
    let world = World::new(4096);
    world.space.keeps_replaced.store(true, Ordering::SeqCst);
    let listed = world.tree();
    let unlisted = world.forest.create_unlisted_tree(support::TREE).unwrap();
    for tree in [&listed, &unlisted] {
        for n in 0..2000 {
            tree.insert(key(n), &[1; 20]).unwrap();
        }
    }
    let check = |tree: &LiveTree, value: u8| {
        for n in [5, 800, 1900] {
            tree.put(key(n), &[value; 20]).unwrap();
            assert_eq!(tree.get(key(n)).unwrap(), Some(vec![value; 20]));
        }
    };
    check(&listed, 2);
    let hits = world.forest.stats().finger_hits;
    assert!(hits > 0);
    let snapshot = world.forest.snapshot_tree(&listed, 300).unwrap();
    check(&listed, 3);
    check(&snapshot, 4);
    assert_eq!(listed.get(key(800)).unwrap(), Some(vec![3; 20]));
    check(&unlisted, 5);
    world.commit();
    check(&unlisted, 6);
    check(&listed, 7);
    check(&snapshot, 8);
}

/// A tree that is dropped as a whole in the transaction that made it leaves nothing to write, and
/// the next tree that gets its addresses keeps them.
#[test]
fn forgotten_blocks_are_not_written() {
    let world = World::new(4096);
    let log = world.forest.create_unlisted_tree(support::TREE).unwrap();
    for n in 0..500 {
        log.insert(key(n), &[1; 20]).unwrap();
    }
    let set = world.forest.write_unlisted();
    for index in 0..set.len() {
        set.seal(index, larder_format::ChecksumType::Crc32c).unwrap();
    }
    let addresses: Vec<_> = set.addresses().collect();
    for address in &addresses {
        log.forget_block(*address);
        world.space.recycle(*address);
    }
    let tree = world.tree();
    for n in 0..500 {
        tree.insert(key(n), &[2; 20]).unwrap();
    }
    assert!(addresses.contains(&tree.root().logical));
    set.finish();
    assert_eq!(world.check_alone(&tree).items, 500);
    world.commit();
    assert!(contents(&tree).values().all(|data| *data == [2; 20]));
}
