use std::sync::Arc;

use larder_format::item::{QgroupLimitItem, QgroupStatusItem, qgroup_limit_flags};
use larder_format::{ItemType, Key};
use zerocopy::{FromZeros, IntoBytes};

use super::{Counted, Quotas};
use crate::error::Error;
use crate::items::Items;
use crate::items::model::ModelTree;

const NODE: u64 = 16384;
const STATUS: Key = Key::new(0, ItemType::QGROUP_STATUS, 0);

fn group(level: u64, id: u64) -> u64 {
    level << 48 | id
}

/// A quota tree in which quotas are on.
fn tree() -> ModelTree {
    let mut tree = ModelTree::default();
    let mut status = QgroupStatusItem::new_zeroed();
    status.flags = 1.into();
    tree.insert(STATUS, status.as_bytes()).unwrap();
    tree
}

fn limit(tree: &mut ModelTree, group: u64, max_rfer: u64) {
    let mut item = QgroupLimitItem::new_zeroed();
    item.flags = qgroup_limit_flags::MAX_RFER.into();
    item.max_rfer = max_rfer.into();
    tree.insert(Key::new(0, ItemType::QGROUP_LIMIT, group), item.as_bytes()).unwrap();
}

fn relate(tree: &mut ModelTree, one: u64, other: u64) {
    tree.insert(Key::new(one, ItemType::QGROUP_RELATION, other), &[]).unwrap();
    tree.insert(Key::new(other, ItemType::QGROUP_RELATION, one), &[]).unwrap();
}

fn load(tree: &ModelTree) -> Arc<Quotas> {
    Arc::new(Quotas::load(tree, NODE as u32).unwrap().expect("quotas are on"))
}

fn group_of_refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> u64 {
    match result {
        Err(Error::QuotaExceeded { limit, .. }) => limit.group,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_status_quotas_are_off() {
    let mut tree = ModelTree::default();
    limit(&mut tree, 256, 0);
    assert!(Quotas::load(&tree, NODE as u32).unwrap().is_none());
    tree.insert(STATUS, QgroupStatusItem::new_zeroed().as_bytes()).unwrap();
    assert!(Quotas::load(&tree, NODE as u32).unwrap().is_none());
}

#[test]
fn reserved_and_counted_bytes_together_never_pass_a_limit() {
    let mut tree = tree();
    let (left, right, top) = (group(1, 1), group(1, 2), group(2, 1));
    limit(&mut tree, 256, 80);
    limit(&mut tree, top, 100);
    for (member, above) in [(256, left), (256, right), (257, right), (left, top), (right, top)] {
        relate(&mut tree, member, above);
    }
    for id in [257, left, right] {
        limit(&mut tree, id, 1000);
    }
    let quotas = load(&tree);
    let mut reservation = quotas.reserve(256, 60).unwrap();
    assert_eq!(group_of_refusal(quotas.reserve(256, 21)), 256);
    // Two ways lead up, and it counts once.
    assert_eq!(group_of_refusal(quotas.reserve(257, 41)), top);
    let other = quotas.reserve(257, 40).unwrap();
    reservation.shrink_to(30);
    reservation.absorb(quotas.reserve(256, 20).unwrap());
    quotas.change(256, 50, 0);
    drop(reservation);
    assert_eq!(group_of_refusal(quotas.reserve(257, 11)), top);
    drop(other);
    drop(quotas.reserve(257, 50).unwrap());
    quotas.change(256, -50, 0);
    drop(quotas.reserve(256, 80).unwrap());
    assert_eq!(quotas.counted(top), Some(Counted::default()));
    // A subvolume without a group has no limit.
    drop(quotas.reserve(300, u64::MAX).unwrap());
}

/// As in the kernel: otherwise a snapshot would be a way around the limit of its source.
#[test]
fn a_snapshot_has_the_limits_of_its_source() {
    let mut tree = tree();
    limit(&mut tree, 256, 2 * NODE);
    let quotas = load(&tree);
    quotas.create(256);
    quotas.snapshot(256, 257);
    quotas.snapshot(300, 301);
    quotas.write(&mut tree, 7).unwrap();
    for quotas in [quotas, load(&tree)] {
        drop(quotas.reserve(257, NODE).unwrap());
        assert_eq!(group_of_refusal(quotas.reserve(257, NODE + 1)), 257);
        drop(quotas.reserve(301, u64::MAX / 2).unwrap());
    }
}

/// Groups of one level in each other, in themselves and in missing ones; absurd counts.
#[test]
fn nonsense_does_no_harm() {
    let mut tree = tree();
    let (one, other) = (group(1, 1), group(1, 2));
    relate(&mut tree, one, other);
    relate(&mut tree, 256, one);
    relate(&mut tree, 256, 257);
    relate(&mut tree, 256, group(65535, 1));
    tree.insert(Key::new(256, ItemType::QGROUP_RELATION, 256), &[]).unwrap();
    for id in [256, one] {
        let info = Key::new(0, ItemType::QGROUP_INFO, id);
        tree.insert(info, &[255; 40]).unwrap();
    }
    limit(&mut tree, 256, u64::MAX - 1);
    let quotas = load(&tree);
    assert_eq!(group_of_refusal(quotas.reserve(256, 1)), 256);
    quotas.change(256, i64::MAX, i64::MAX);
    quotas.change(256, i64::MIN, i64::MIN);
    quotas.snapshot(256, 258);
    quotas.dropped(256);
    quotas.dropped(258);
    quotas.write(&mut tree, 7).unwrap();
    let quotas = load(&tree);
    assert!(quotas.counted(258).is_some(), "a new group has items");
    tree.insert(Key::new(0, ItemType::QGROUP_INFO, 259), &[0; 39]).unwrap();
    assert!(Quotas::load(&tree, NODE as u32).is_err());
}
