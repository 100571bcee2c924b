//! Heads run against a model: a map from referrers to counts.

use std::collections::BTreeMap;

use larder_format::item::{BackRef, EXTENT_FLAG_DATA, Extent};
use larder_format::{ItemType, Key, Logical};
use proptest::prelude::*;

use super::{ExtentChange, ExtentItems, Referrer};
use crate::error::Result;
use crate::items::model::ModelTree;
use crate::refs::{ExtentKind, Head};

const AT: Logical = Logical(1 << 30);
const BLOCK: ExtentKind = ExtentKind::TreeBlock { level: 1, first_key: Key::MIN };

fn items(skinny_metadata: bool) -> ExtentItems {
    ExtentItems { nodesize: 4096, skinny_metadata, generation: 9 }
}

fn head(kind: ExtentKind, is_new: bool, changes: &[(Referrer, i64)]) -> Head {
    let mut head = Head::new(4096, kind);
    head.is_new = is_new;
    for (referrer, count) in changes {
        head.change(*referrer, *count);
    }
    head
}

fn run_one(items: ExtentItems, tree: &mut ModelTree, head: Head) -> Result<ExtentChange> {
    Ok(items.run(tree, &[(AT, head)])?[0])
}

/// All back references of an extent. Fails if an invariant is broken.
fn references_at(tree: &ModelTree, at: Logical) -> BTreeMap<Referrer, u64> {
    let mut found = BTreeMap::new();
    let mut claimed = 0;
    let first = Key { objectid: at.0, ..Key::MIN };
    for (key, data) in tree.items.range(first..).take_while(|(key, _)| key.objectid == at.0) {
        let mut add = |back_ref: BackRef| {
            let referrer = Referrer::of(&back_ref).expect("no owners here");
            assert!(back_ref.count() > 0, "{key}: {back_ref:?}");
            assert_eq!(found.insert(referrer, u64::from(back_ref.count())), None, "{key} repeats");
        };
        if matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM) {
            assert!(data.len() <= 4096 / 16, "{} bytes", data.len());
            let extent = Extent::parse(*key, data).unwrap();
            claimed = extent.item.refs.get();
            let inline: Vec<BackRef> =
                extent.back_refs().map(|inline| inline.unwrap().back_ref).collect();
            let order = |b: &BackRef| (b.item_type().0, std::cmp::Reverse(b.sequence()));
            assert!(inline.is_sorted_by_key(order), "{inline:?}");
            inline.into_iter().for_each(add);
        } else {
            add(BackRef::parse_keyed(*key, data).unwrap());
        }
    }
    assert_eq!(claimed, found.values().sum::<u64>());
    found
}

fn references(tree: &ModelTree) -> BTreeMap<Referrer, u64> {
    references_at(tree, AT)
}

fn referrers(kind: ExtentKind) -> Vec<Referrer> {
    let numbers = 256..276;
    match kind {
        ExtentKind::Data => numbers
            .flat_map(|n| {
                let file = Referrer::File { root: 5 + n % 3, inode: n, offset: n << 12 };
                [file, Referrer::Leaf { parent: n << 14 }]
            })
            .collect(),
        ExtentKind::TreeBlock { .. } => numbers
            .flat_map(|n| [Referrer::Tree { root: n }, Referrer::Block { parent: n << 14 }])
            .collect(),
    }
}

/// A referrer of one of several extents, and the count that it gets.
type Target = (u64, usize, u64);

/// Runs batches of heads that move each named referrer to its count.
fn run(kind: ExtentKind, skinny: bool, batches: &[Vec<Target>]) {
    let (items, referrers) = (items(skinny), referrers(kind));
    let mut tree = ModelTree::default();
    let mut models: BTreeMap<Logical, BTreeMap<Referrer, u64>> = BTreeMap::new();
    for targets in batches {
        let mut heads: BTreeMap<Logical, BTreeMap<Referrer, u64>> = BTreeMap::new();
        for (extent, index, count) in targets {
            let most = if kind == ExtentKind::Data { 5 } else { 1 };
            let head = heads.entry(Logical(AT.0 + extent * 4096)).or_default();
            head.insert(referrers[index % referrers.len()], count % (most + 1));
        }
        let (mut batch, mut expected) = (Vec::new(), Vec::new());
        for (at, after) in &heads {
            let model = models.entry(*at).or_default();
            let is_new = model.is_empty();
            let before = |referrer| model.get(referrer).copied().unwrap_or(0) as i64;
            let deltas: Vec<(Referrer, i64)> =
                after.iter().map(|(r, after)| (*r, *after as i64 - before(r))).collect();
            model.extend(after);
            model.retain(|_, count| *count > 0);
            let head = head(kind, is_new, &deltas);
            expected.push(match (is_new, model.is_empty()) {
                _ if head.touches_nothing() => ExtentChange::Kept,
                (true, _) => ExtentChange::Inserted,
                (false, true) => ExtentChange::Removed,
                (false, false) => ExtentChange::Kept,
            });
            batch.push((*at, head));
        }
        assert_eq!(items.run(&mut tree, &batch).unwrap(), expected);
        for (at, model) in &models {
            assert_eq!(references_at(&tree, *at), *model);
        }
        let is_wanted = |key: &Key| !models[&Logical(key.objectid)].is_empty();
        assert!(tree.items.keys().all(is_wanted));
    }
}

proptest! {
    #[test]
    fn like_a_map_of_counts(
        batches in prop::collection::vec(
            prop::collection::vec((0_u64..3, 0_usize..40, 0_u64..6), 1..24),
            1..40,
        ),
        is_data: bool,
        skinny: bool,
    ) {
        run(if is_data { ExtentKind::Data } else { BLOCK }, skinny, &batches);
    }
}

#[test]
fn a_head_that_changes_nothing_edits_nothing() {
    let mut tree = ModelTree::default();
    let file = Referrer::File { root: 5, inode: 257, offset: 0 };
    let head = head(ExtentKind::Data, false, &[(file, 1), (file, -1)]);
    assert_eq!(run_one(items(true), &mut tree, head).unwrap(), ExtentChange::Kept);
    assert_eq!(tree.edits, 0);
}

#[test]
fn a_block_keeps_the_long_key_that_it_was_made_with() {
    let mut tree = ModelTree::default();
    let owner = Referrer::Tree { root: 5 };
    run_one(items(false), &mut tree, head(BLOCK, true, &[(owner, 1)])).unwrap();
    let snapshot = Referrer::Tree { root: 257 };
    run_one(items(true), &mut tree, head(BLOCK, false, &[(snapshot, 1)])).unwrap();
    assert_eq!(references(&tree).len(), 2);
    assert_eq!(tree.items.len(), 1);
}

#[test]
fn impossible_values_are_an_error() {
    let (file, other) =
        (Referrer::File { root: 5, inode: 257, offset: 0 }, Referrer::Leaf { parent: 1 << 20 });
    let mut tree = ModelTree::default();
    let mut refused = |head: Head| run_one(items(true), &mut tree, head).is_err();
    assert!(refused(head(ExtentKind::Data, false, &[(file, 1)])), "no item");
    assert!(refused(head(ExtentKind::Data, true, &[(file, -1)])), "nothing to drop");
    run_one(items(true), &mut tree, head(ExtentKind::Data, true, &[(file, 1)])).unwrap();
    let refused = |head: Head| run_one(items(true), &mut tree.clone(), head).is_err();
    assert!(refused(head(ExtentKind::Data, false, &[(file, -2)])), "dropped twice");
    assert!(refused(head(ExtentKind::Data, false, &[(other, -1)])), "dropped by a stranger");
    assert!(refused(head(ExtentKind::Data, true, &[(file, 1)])), "it is there already");
    let tree_ref = Referrer::Tree { root: 5 };
    let block = head(BLOCK, false, &[(tree_ref, 1)]);
    assert!(refused(block), "data is no tree block");
    let mut longer = head(ExtentKind::Data, false, &[(file, 1)]);
    longer.compare(8192, ExtentKind::Data);
    assert!(refused(longer), "two lengths");
}

#[test]
fn references_whose_hashes_collide_take_the_next_keys() {
    let mut tree = ModelTree::default();
    let wanted = Referrer::File { root: 5, inode: 300, offset: 0 };
    let (first, items) = (Referrer::Leaf { parent: 1 << 20 }, items(true));
    run_one(items, &mut tree, head(ExtentKind::Data, true, &[(first, 1)])).unwrap();
    // Two other references have the keys that the wanted one would get, and the first is removed
    // again.
    let hash = wanted.back_ref(1).sequence();
    for (offset, inode) in [(hash, 900), (hash + 1, 901)] {
        let stranger = Referrer::File { root: 5, inode, offset: 0 };
        let key = Key::new(AT.0, ItemType::EXTENT_DATA_REF, offset);
        tree.items.insert(key, super::apply::keyed_data(stranger, 1));
    }
    run_one(items, &mut tree, head(ExtentKind::Data, false, &[(wanted, 2)])).unwrap();
    let at = |offset| Key::new(AT.0, ItemType::EXTENT_DATA_REF, offset);
    assert!(tree.items.contains_key(&at(hash + 2)));
    tree.items.remove(&at(hash));
    run_one(items, &mut tree, head(ExtentKind::Data, false, &[(wanted, 1)])).unwrap();
    assert!(!tree.items.contains_key(&at(hash)), "the reference that is there was counted up");
    run_one(items, &mut tree, head(ExtentKind::Data, false, &[(wanted, -3)])).unwrap();
    assert!(!tree.items.contains_key(&at(hash + 2)));
}

#[test]
fn the_full_back_reference_flag_is_set() {
    let mut tree = ModelTree::default();
    let owner = Referrer::Tree { root: 5 };
    run_one(items(true), &mut tree, head(BLOCK, true, &[(owner, 1)])).unwrap();
    let mut set = head(BLOCK, false, &[]);
    set.sets_full_backref = true;
    run_one(items(true), &mut tree, set).unwrap();
    let references = items(true).references(&tree, AT, 4096, BLOCK).unwrap().unwrap();
    assert_eq!(references.count, 1);
    assert_ne!(references.flags & larder_format::item::EXTENT_FLAG_FULL_BACKREF, 0);
    assert_eq!(references.flags & EXTENT_FLAG_DATA, 0);
}
