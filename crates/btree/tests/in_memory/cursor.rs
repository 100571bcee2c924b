//! Cursors against a sorted list, in trees of every shape, sound and damaged.

use std::collections::HashSet;

use larder_btree::{Problem, Readahead, Tree, TreeView, ViewCursor};
use larder_format::node::HEADER_SIZE;
use larder_format::{Key, Logical};
use proptest::prelude::*;

use crate::support::{self, Built, Item, build, items, key};

fn assert_item(cursor: &ViewCursor, expected: Option<&Item>) {
    assert_eq!(cursor.item(), expected.map(|(key, data)| (*key, &data[..])));
}

#[derive(Clone, Debug)]
enum Move {
    Seek(u64),
    SeekLast(u64),
    Next,
    Prev,
    Get(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        (0..900_u64).prop_map(Move::Seek),
        (0..900_u64).prop_map(Move::SeekLast),
        Just(Move::Next),
        Just(Move::Next),
        Just(Move::Prev),
        Just(Move::Prev),
        (0..900_u64).prop_map(Move::Get),
    ]
}

/// The position of a cursor between `items`: `items.len()` after all, `None` before all.
fn check_moves(tree: &TreeView, items: &[Item], moves: &[Move]) {
    let mut cursor = tree.cursor(Readahead::Forward);
    let mut at: Option<usize> = None;
    let mut nowhere = true;
    for step in moves {
        let found = match step {
            Move::Seek(n) => {
                at = Some(items.partition_point(|item| item.0 < key(*n)));
                cursor.seek(key(*n))
            }
            Move::SeekLast(n) => {
                at = items.partition_point(|item| item.0 <= key(*n)).checked_sub(1);
                cursor.seek_last(key(*n))
            }
            Move::Next => {
                at = Some(at.map_or(0, |at| (at + 1).min(items.len())));
                cursor.next()
            }
            Move::Prev => {
                let before = if nowhere { Some(items.len()) } else { at };
                at = before.and_then(|at| at.checked_sub(1));
                cursor.prev()
            }
            Move::Get(n) => {
                let found = tree.get(key(*n)).expect("a sound tree");
                let expected = items.iter().find(|item| item.0 == key(*n));
                assert_eq!(found.as_deref(), expected.map(|item| &item.1[..]));
                continue;
            }
        };
        nowhere = false;
        let expected = at.and_then(|at| items.get(at));
        assert_eq!(found.expect("a sound tree"), expected.is_some(), "{step:?}");
        assert_item(&cursor, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cursor_moves_like_a_place_in_a_sorted_list(
        count in 0..400_u64,
        fan_out in 3..40_usize,
        moves in prop::collection::vec(any_move(), 1..120),
    ) {
        let items = items(count, 60);
        let built = build(4096, fan_out, &items);
        for view in built.views() {
            check_moves(&view, &items, &moves);
        }
    }

    #[test]
    fn a_range_has_the_items_of_a_sorted_list(
        count in 0..300_u64,
        fan_out in 3..10_usize,
        start in 0..700_u64,
        len in 0..700_u64,
    ) {
        let items = items(count, 20);
        let (first, end) = (key(start), key(start + len));
        let expected: Vec<_> = items.iter().filter(|i| i.0 >= first && i.0 < end).collect();
        for view in build(4096, fan_out, &items).views() {
            let found = view.range(first..end, Readahead::None).map(Result::unwrap);
            let found: Vec<_> = found.map(|item| (item.key(), item.to_vec())).collect();
            assert!(found.iter().eq(expected.iter().copied()));
        }
    }
}

#[test]
fn leaves_can_be_stepped_over_both_ways() {
    let items = items(100, 0);
    let built = build(4096, 7, &items);
    let firsts: Vec<Key> = built.levels[0].iter().map(|leaf| leaf.0).collect();
    let mut cursor = built.tree().cursor(Readahead::Forward);
    let mut seen = Vec::new();
    while cursor.next_leaf().unwrap() {
        seen.push(cursor.key().unwrap());
    }
    assert_eq!(seen, firsts);
    let mut lasts = Vec::new();
    let mut more = cursor.prev().unwrap();
    while more {
        lasts.push(cursor.key().unwrap());
        more = cursor.prev_leaf().unwrap();
    }
    let expected: Vec<Key> = items.chunks(7).rev().map(|leaf| leaf[leaf.len() - 1].0).collect();
    assert_eq!(lasts, expected);
}

/// The items that a walk in one direction finds, and how many errors it meets.
fn rescue(view: &TreeView, forward: bool) -> (Vec<Key>, usize) {
    let mut cursor = view.cursor(Readahead::ForwardAlways);
    let (mut found, mut errors) = (Vec::new(), 0);
    let mut moved = if forward { cursor.next() } else { cursor.prev() };
    loop {
        match moved {
            Ok(true) => found.push(cursor.key().unwrap()),
            Ok(false) => return (found, errors),
            Err(_) => {
                errors += 1;
                assert_eq!(cursor.item(), None);
                moved = cursor.skip_subtree();
                continue;
            }
        }
        moved = if forward { cursor.next() } else { cursor.prev() };
    }
}

#[test]
fn a_block_that_cannot_be_read_costs_its_subtree_only() {
    let items = items(400, 10);
    for level in 0..3 {
        for victim in 0..build(4096, 5, &items).levels[level].len() {
            let built = build(4096, 5, &items);
            let (first, logical) = built.levels[level][victim];
            let end = built.levels[level].get(victim + 1).map_or(Key::MAX, |next| next.0);
            built.store.remove(logical);
            let mut expected: Vec<Key> =
                items.iter().map(|i| i.0).filter(|k| !(first..end).contains(k)).collect();
            for view in built.views() {
                assert_eq!(rescue(&view, true), (expected.clone(), 1));
                let ranged = view.range(.., Readahead::None).flatten().map(|item| item.key());
                assert!(ranged.eq(expected.iter().copied()));
                expected.reverse();
                assert_eq!(rescue(&view, false), (expected.clone(), 1));
                expected.reverse();
            }
        }
    }
}

#[test]
fn a_damaged_block_is_tried_again_and_can_be_skipped_both_ways() {
    let items = items(30, 0);
    let built = build(4096, 3, &items);
    built.store.remove(built.levels[0][5].1);
    for view in built.views() {
        let mut cursor = view.cursor(Readahead::None);
        let error = cursor.seek(items[16].0).unwrap_err();
        assert_eq!((error.tree, error.level, error.key), (support::TREE, 0, Some(items[15].0)));
        assert_eq!((error.logical, error.upper), (built.levels[0][5].1, Some(items[18].0)));
        assert!(cursor.next().is_err());
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.key(), Some(items[14].0));
        assert!(cursor.next().is_err());
        assert!(cursor.skip_subtree().unwrap());
        assert_eq!(cursor.key(), Some(items[18].0));
        assert!(cursor.seek(items[2].0).unwrap());
    }
}

#[test]
fn an_unreadable_root_ends_every_walk() {
    let built = build(4096, 3, &items(30, 0));
    built.store.remove(built.root.logical);
    for view in built.views() {
        assert_eq!(rescue(&view, true), (vec![], 1));
        assert_eq!(view.range(.., Readahead::None).map(|item| assert!(item.is_err())).count(), 1);
    }
}

#[test]
fn children_must_match_their_parents() {
    let items = items(60, 8);
    let victim = |built: &Built| built.levels[0][3].1;
    // Offsets of fields in the header, and their names in the error.
    for (field, offset) in [("address", 48), ("generation", 80), ("owner", 88)] {
        let built = build(4096, 4, &items);
        built.store.damage(victim(&built), |bytes| bytes[offset] ^= 4);
        let error = built.tree().get(items[13].0).unwrap_err();
        let Problem::Mismatch { field: found, .. } = *error.problem else { panic!("{error}") };
        assert_eq!(found, field);
    }
    let built = build(4096, 4, &items);
    built.store.damage(victim(&built), |bytes| bytes[HEADER_SIZE + 9] -= 1);
    let error = built.tree().get(items[13].0).unwrap_err();
    assert!(matches!(*error.problem, Problem::FirstKey { .. }), "{error}");

    let built = build(4096, 4, &items);
    built.store.damage(victim(&built), |bytes| bytes[HEADER_SIZE + 3 * 25 + 7] = 0xff);
    let error = built.tree().get(items[13].0).unwrap_err();
    assert!(matches!(*error.problem, Problem::OutOfRange { .. }), "{error}");

    let built = build(4096, 4, &items);
    built.store.damage(victim(&built), |bytes| bytes[96] = 0xff);
    let error = built.tree().get(items[13].0).unwrap_err();
    assert!(matches!(*error.problem, Problem::Format(_)), "{error}");
}

#[test]
fn a_node_that_points_at_itself_cannot_make_a_walk_loop() {
    let built = build(4096, 3, &items(60, 0));
    let (_, node) = built.levels[1][1];
    built.store.damage(node, |bytes| {
        bytes[HEADER_SIZE + 17..][..8].copy_from_slice(&node.0.to_le_bytes());
    });
    for view in built.views() {
        let (found, errors) = rescue(&view, true);
        assert_eq!((found.len(), errors), (57, 1));
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len());
    }
}

#[test]
fn two_pointers_that_disagree_about_a_block_cannot_both_have_it() {
    let built = build(4096, 3, &items(60, 0));
    let mut other = built.root;
    other.generation += 1;
    let tree = built.tree();
    assert!(tree.root_block().is_ok());
    let impostor = Tree::new(tree.cache().clone(), other);
    assert!(impostor.root_block().is_err());
    assert!(tree.root_block().is_ok());
    assert_eq!(tree.root_block().unwrap().logical(), Logical(built.root.logical.0));
}
