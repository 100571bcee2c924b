//! Changing trees against an ordered map: random batches of every operation, for all node sizes,
//! with the whole tree's shape checked after each batch.

use std::collections::HashSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Bound;
use std::sync::Arc;

use larder_btree::{ChangeError, Keep, LiveTree, LockPolicy, Readahead};
use larder_format::{Key, Node};
use proptest::prelude::*;

use crate::support::key;
use crate::support::space::World;

type Model = BTreeMap<Key, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, usize),
    /// First key, distance of keys, count, length.
    Batch(u64, u64, u64, usize),
    Put(u64, usize),
    Modify(u64),
    Replace(u64, usize),
    /// First key, how many, which of them to leave out, and a bound of the lengths.
    ReplaceBatch(u64, usize, u64, usize),
    Extend(u64, usize),
    Truncate(u64, usize, bool),
    SplitItem(u64, usize),
    Duplicate(u64),
    SetKey(u64, u64),
    Delete(u64),
    DeleteRange(u64, u64),
    /// First key, how many, and which of them to leave out.
    DeleteBatch(u64, usize, u64),
    Commit,
}

/// Keys go up to this number.
const KEYS: u64 = 4000;

fn any_op(most_bytes: usize) -> impl Strategy<Value = Op> {
    let number = 0..KEYS;
    let len = prop_oneof![4 => 0..most_bytes / 20, 1 => 0..most_bytes];
    prop_oneof![
        6 => (number.clone(), len.clone()).prop_map(|(n, len)| Op::Insert(n, len)),
        4 => (number.clone(), 1..9_u64, 1..60_u64, 0..most_bytes / 10)
            .prop_map(|(n, step, count, len)| Op::Batch(n, step, count, len)),
        3 => (number.clone(), len.clone()).prop_map(|(n, len)| Op::Put(n, len)),
        2 => number.clone().prop_map(Op::Modify),
        2 => (number.clone(), len.clone()).prop_map(|(n, len)| Op::Replace(n, len)),
        3 => (number.clone(), 1..200_usize, 1..9_u64, prop_oneof![3 => 1..60_usize, 1 => 1..most_bytes / 5])
            .prop_map(|(n, count, out, below)| Op::ReplaceBatch(n, count, out, below)),
        2 => (number.clone(), len.clone()).prop_map(|(n, len)| Op::Extend(n, len)),
        2 => (number.clone(), len.clone(), any::<bool>())
            .prop_map(|(n, len, front)| Op::Truncate(n, len, front)),
        2 => (number.clone(), len).prop_map(|(n, len)| Op::SplitItem(n, len)),
        2 => number.clone().prop_map(Op::Duplicate),
        1 => (number.clone(), number.clone()).prop_map(|(n, to)| Op::SetKey(n, to)),
        4 => number.clone().prop_map(Op::Delete),
        1 => (number.clone(), 0..KEYS / 2).prop_map(|(n, len)| Op::DeleteRange(n, len)),
        1 => (number, 1..60_usize, 1..9_u64).prop_map(|(n, count, out)| Op::DeleteBatch(n, count, out)),
        1 => Just(Op::Commit),
    ]
}

fn data(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n as usize * 31 + at) as u8).collect()
}

/// The key of the item at or after key `n`: most operations should find something.
fn near(model: &Model, n: u64) -> Option<Key> {
    model.range(key(n)..).next().or_else(|| model.iter().next()).map(|(key, _)| *key)
}

fn next_key(model: &Model, at: Key) -> Option<Key> {
    model.range((Bound::Excluded(at), Bound::Unbounded)).next().map(|(key, _)| *key)
}

fn apply(world: &World, tree: &Arc<LiveTree>, model: &mut Model, op: &Op, capacity: usize) {
    match *op {
        Op::Insert(n, len) => {
            let result = tree.insert(key(n), &data(n, len));
            if let Entry::Vacant(entry) = model.entry(key(n)) {
                result.unwrap();
                entry.insert(data(n, len));
            } else {
                assert!(matches!(result, Err(ChangeError::Exists { .. })));
            }
        }
        Op::Batch(n, step, count, len) => {
            let items: Vec<_> = (0..count)
                .map(|i| n + i * step)
                .filter(|&n| !model.contains_key(&key(n)))
                .map(|n| (key(n), data(n, len)))
                .collect();
            let borrowed: Vec<_> = items.iter().map(|(key, data)| (*key, &data[..])).collect();
            tree.insert_batch(&borrowed).unwrap();
            model.extend(items);
        }
        Op::Put(n, len) => {
            tree.put(key(n), &data(n + 1, len)).unwrap();
            model.insert(key(n), data(n + 1, len));
        }
        Op::Commit => world.commit(),
        Op::DeleteRange(n, len) => {
            let (first, last) = (key(n), key(n + len));
            let gone: HashSet<Key> = model.range(first..=last).map(|(key, _)| *key).collect();
            assert_eq!(tree.delete_range(first..=last).unwrap(), gone.len() as u64);
            model.retain(|key, _| !gone.contains(key));
        }
        Op::DeleteBatch(n, count, out) => {
            let there = model.range(key(n)..).map(|(key, _)| *key).take(count);
            let mut keys: Vec<Key> = there.filter(|key| key.offset % (out + 1) != 0).collect();
            let gone = keys.len();
            // A key that does not exist.
            keys.extend(
                keys.last().and_then(|key| key.successor()).filter(|k| !model.contains_key(k)),
            );
            assert_eq!(tree.delete_batch(&keys).unwrap(), gone as u64);
            model.retain(|key, _| !keys.contains(key));
        }
        Op::ReplaceBatch(n, count, out, below) => {
            let there =
                model.range(key(n)..).take(count).filter(|(key, _)| key.offset % (out + 1) != 0);
            // Some become longer, some shorter, some stay as long as they were.
            let len = |at: usize, old: usize| {
                if at.is_multiple_of(3) { old } else { (at * 31 + count) % below }
            };
            let mut items: Vec<_> = there
                .enumerate()
                .map(|(at, (key, old))| (*key, data(n + at as u64, len(at, old.len()))))
                .collect();
            model.extend(items.iter().cloned());
            let absent = items.last().and_then(|(key, _)| key.successor());
            items.extend(absent.filter(|key| !model.contains_key(key)).map(|key| (key, vec![])));
            let borrowed: Vec<_> = items.iter().map(|(key, data)| (*key, &data[..])).collect();
            match tree.replace_batch(&borrowed) {
                Err(ChangeError::NotFound { key, .. }) => {
                    assert!(Some(key) == absent && !model.contains_key(&key));
                }
                result => {
                    result.unwrap();
                    assert!(absent.is_none_or(|key| model.contains_key(&key)));
                }
            }
        }
        Op::Modify(n)
        | Op::Replace(n, _)
        | Op::Extend(n, _)
        | Op::Truncate(n, ..)
        | Op::SplitItem(n, _)
        | Op::Duplicate(n)
        | Op::SetKey(n, _)
        | Op::Delete(n) => {
            if let Some(at) = near(model, n) {
                apply_to_item(tree, model, op, at, capacity);
            }
        }
    }
}

fn apply_to_item(tree: &Arc<LiveTree>, model: &mut Model, op: &Op, at: Key, capacity: usize) {
    let next = next_key(model, at);
    let item = model.get_mut(&at).unwrap();
    let between = at.successor().filter(|key| next.is_none_or(|next| *key < next));
    match *op {
        Op::Modify(n) => {
            tree.modify(at, |data| data.fill(n as u8)).unwrap();
            item.fill(n as u8);
        }
        Op::Replace(n, len) => {
            tree.replace(at, &data(n, len)).unwrap();
            *item = data(n, len);
            if let Some(absent) = between {
                let result = tree.replace(absent, &data(n, len));
                assert!(matches!(result, Err(ChangeError::NotFound { .. })));
            }
        }
        Op::Extend(n, len) => {
            let result = tree.extend(at, &data(n, len));
            if item.len() + len + 25 > capacity {
                assert!(matches!(result, Err(ChangeError::TooLarge { .. })), "{result:?}");
            } else {
                result.unwrap();
                item.extend(data(n, len));
            }
        }
        Op::Truncate(_, len, front) => {
            tree.truncate(at, len, if front { Keep::Front } else { Keep::Back }).unwrap();
            let cut = item.len().saturating_sub(len);
            if front { item.truncate(len) } else { drop(item.drain(..cut)) }
        }
        Op::SplitItem(_, len) => {
            let (Some(new_key), true) = (between, len <= item.len()) else { return };
            let result = tree.split_item(at, len, new_key);
            if item.len() + 50 > capacity {
                assert!(matches!(result, Err(ChangeError::TooLarge { .. })));
            } else {
                result.unwrap();
                let rest = item.split_off(len);
                model.insert(new_key, rest);
            }
        }
        Op::Duplicate(_) => {
            let Some(new_key) = between else {
                let next = next.unwrap();
                assert!(tree.duplicate_item(at, next).is_err());
                return;
            };
            let result = tree.duplicate_item(at, new_key);
            if 2 * (item.len() + 25) > capacity {
                assert!(matches!(result, Err(ChangeError::TooLarge { .. })));
            } else {
                result.unwrap();
                let copy = item.clone();
                model.insert(new_key, copy);
            }
        }
        Op::SetKey(_, to) => {
            let before = model.range(..at).next_back().map(|(key, _)| *key);
            let fits = |new: Key| before.is_none_or(|b| b < new) && next.is_none_or(|n| new < n);
            let new_key = key(to);
            if fits(new_key) && new_key != at {
                tree.set_key(at, new_key).unwrap();
                let data = model.remove(&at).unwrap();
                model.insert(new_key, data);
            }
        }
        Op::Delete(_) => {
            assert!(tree.delete(at).unwrap());
            assert!(!tree.delete(at).unwrap());
            model.remove(&at);
        }
        _ => unreachable!(),
    }
}

fn compare(world: &World, tree: &Arc<LiveTree>, model: &Model) {
    let shape = world.check_alone(tree);
    assert_eq!(shape.items, model.len() as u64);
    let mut cursor = tree.cursor(Readahead::Forward);
    for (key, data) in model {
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.item(), Some((*key, &data[..])));
    }
    assert!(!cursor.next().unwrap());
    for (key, _) in model.iter().rev().step_by(3) {
        assert!(cursor.seek_last(*key).unwrap());
        assert_eq!(cursor.key(), Some(*key));
    }
    let mut near = tree.cursor(Readahead::None);
    for at in model.keys().step_by(2).flat_map(|key| [Some(*key), key.successor()]).flatten() {
        let before = near.key();
        if !near.seek_here(at) {
            assert_eq!(near.key(), before);
            near.seek(at).unwrap();
        }
        assert_eq!(near.key(), model.range(at..).next().map(|(key, _)| *key));
    }
    for (key, data) in model.iter().step_by(5) {
        assert_eq!(tree.get(*key).unwrap().as_ref(), Some(data));
    }
}

fn run(nodesize: usize, policy: LockPolicy, batches: &[Vec<Op>]) {
    let capacity = nodesize - larder_format::node::HEADER_SIZE;
    // The least cache there is: blocks of earlier transactions come and go.
    let world = World::with(nodesize, policy, 0);
    let tree = world.tree();
    let mut model = Model::new();
    for batch in batches {
        for op in batch {
            apply(&world, &tree, &mut model, op, capacity);
        }
        compare(&world, &tree, &model);
    }
    world.commit();
    let committed = world.committed(tree.root());
    let items = committed.range(.., larder_btree::Readahead::Forward).map(Result::unwrap);
    assert!(items.map(|i| (i.key(), i.data().to_vec())).eq(model.clone()));
    tree.delete_range(Key::MIN..=Key::MAX).unwrap();
    assert_eq!(world.check_alone(&tree).blocks, [1]);
}

fn batches(most_bytes: usize) -> impl Strategy<Value = Vec<Vec<Op>>> {
    prop::collection::vec(prop::collection::vec(any_op(most_bytes), 1..60), 1..12)
}

/// The way to take locks that the ablations compare with.
fn from_level_1(early_release: bool) -> LockPolicy {
    LockPolicy { early_release, first_write_level: 1, fingers: false, ..LockPolicy::default() }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn nodes_of_4k(batches in batches(3900)) {
        run(4096, LockPolicy::default(), &batches);
    }

    #[test]
    fn nodes_of_4k_locked_from_level_1_without_early_release(batches in batches(3900)) {
        run(4096, from_level_1(false), &batches);
    }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn nodes_of_8k(batches in batches(8000)) {
        run(8192, from_level_1(true), &batches);
    }

    #[test]
    fn nodes_of_16k(batches in batches(16200)) {
        run(16384, LockPolicy::default(), &batches);
    }

    #[test]
    fn nodes_of_32k(batches in batches(32000)) {
        run(32768, LockPolicy::default(), &batches);
    }

    #[test]
    fn nodes_of_64k(batches in batches(65000)) {
        run(65536, LockPolicy::default(), &batches);
    }
}

/// Deep trees: three levels and more, grown and taken down in several orders.
#[test]
fn deep_trees_grow_and_shrink() {
    let count = 60_000_u64;
    let scattered = |n: u64| n.wrapping_mul(7919) % count;
    let ascending = |n: u64| n;
    let descending = |n: u64| count - 1 - n;
    let orders: [(&str, &dyn Fn(u64) -> u64); 3] =
        [("ascending", &ascending), ("descending", &descending), ("scattered", &scattered)];
    for (inserting, insert) in &orders {
        for (deleting, delete) in &orders {
            let world = World::new(4096);
            let tree = world.tree();
            for n in 0..count {
                tree.insert(key(insert(n)), &[n as u8; 9]).unwrap();
            }
            let shape = world.check_alone(&tree);
            assert_eq!(shape.items, count, "{inserting}");
            assert!(shape.blocks.len() >= 3, "{inserting} {shape:?}");
            let fill = shape.used_bytes as f64 / (shape.blocks[0] * 3995) as f64;
            let least = if *inserting == "ascending" { 0.98 } else { 0.45 };
            assert!(fill > least, "{inserting}: leaves are {fill} full");
            for n in 0..count - 10 {
                assert!(tree.delete(key(delete(n))).unwrap(), "{inserting} {deleting} {n}");
            }
            let shape = world.check_alone(&tree);
            assert_eq!((shape.items, shape.blocks.len()), (10, 1), "{inserting} {deleting}");
        }
    }
}

/// A block that fits nowhere else splits its leaf in two places.
#[test]
fn a_large_item_between_small_ones_gets_a_leaf_of_its_own() {
    let world = World::new(4096);
    let tree = world.tree();
    for n in 0..100 {
        tree.insert(key(2 * n), &[n as u8; 10]).unwrap();
    }
    let before = world.forest.stats().double_splits;
    tree.insert(key(101), &[7; 3900]).unwrap();
    assert_eq!(world.forest.stats().double_splits, before + 1);
    world.check_alone(&tree);
    assert_eq!(tree.get(key(101)).unwrap().map(|data| data.len()), Some(3900));
    // The same by growth.
    tree.extend(key(40), &[9; 3900]).unwrap();
    assert_eq!(world.forest.stats().double_splits, before + 2);
    world.check_alone(&tree);
}

/// Items that all grow, in leaves that are full: each leaf splits on the way, and the batch goes
/// on after it.
#[test]
fn a_batch_outgrows_the_leaves_that_it_is_in() {
    let world = World::new(4096);
    let tree = world.tree();
    for n in 0..2000 {
        tree.insert(key(n), &[n as u8; 33]).unwrap();
    }
    let leaves = world.check_alone(&tree).blocks[0];
    let items: Vec<_> = (0..2000).filter(|n| n % 3 > 0).map(|n| (key(n), data(n, 42))).collect();
    let borrowed: Vec<_> = items.iter().map(|(key, data)| (*key, &data[..])).collect();
    let before = world.forest.stats();
    tree.replace_batch(&borrowed).unwrap();
    let after = world.forest.stats();
    assert!(after.leaf_splits - before.leaf_splits > leaves / 3, "{before:?} {after:?}");
    world.check_alone(&tree);
    for n in 0..2000 {
        let expected = if n % 3 > 0 { data(n, 42) } else { vec![n as u8; 33] };
        assert_eq!(tree.get(key(n)).unwrap(), Some(expected), "{n}");
    }
    // The error names the first of two bad items. The items before it are changed.
    let wrong = [(key(3), &[1_u8; 50][..]), (key(4000), &[2; 3]), (key(4001), &[2; 3])];
    let error = tree.replace_batch(&wrong).unwrap_err();
    assert!(matches!(error, ChangeError::NotFound { key: named, .. } if named == key(4000)));
    assert_eq!(tree.get(key(3)).unwrap(), Some(vec![1; 50]));
    let unordered = [(key(4), &[1_u8][..]), (key(4), &[2])];
    assert!(matches!(tree.replace_batch(&unordered), Err(ChangeError::OutOfOrder { .. })));
}

#[test]
fn a_failed_allocation_leaves_the_tree_as_it_was() {
    let world = World::new(4096);
    let tree = world.tree();
    for n in 0..400 {
        tree.insert(key(2 * n), &[n as u8; 30]).unwrap();
    }
    world.commit();
    let left = &world.space.allocations_left;
    for allowed in 0..8 {
        left.store(allowed, std::sync::atomic::Ordering::SeqCst);
        // Copies, a double split, and a root that grows at the last.
        let result = tree.insert(key(101), &[7; 3900]);
        left.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
        let shape = world.check_alone(&tree);
        if result.is_ok() {
            assert_eq!(shape.items, 401);
            assert!(allowed > 2);
            return;
        }
        assert!(matches!(result, Err(ChangeError::Space { .. })));
        assert_eq!(shape.items, 400);
    }
    panic!("eight blocks are enough");
}

#[test]
fn removed_data_does_not_reach_the_store() {
    let world = World::new(4096);
    let tree = world.tree();
    for n in 0..100 {
        tree.insert(key(n), &[0xee; 20]).unwrap();
    }
    tree.delete_range(key(3)..=key(98)).unwrap();
    world.commit();
    let root = world.committed(tree.root()).root_block().unwrap();
    let secret: usize = root.bytes().split(|byte| *byte != 0xee).map(<[u8]>::len).sum();
    assert_eq!(secret, 4 * 20);
    assert_eq!(Node::parse(root.bytes()).unwrap().nritems(), 4);
}
