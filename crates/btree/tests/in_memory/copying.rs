//! Leaves that are copied before they change: the copy replaces the old one in memory, and a reader
//! that has the old one, or reaches it from a committed root, sees it unchanged.

use crate::support::key;
use crate::support::space::World;

const ITEMS: u64 = 2000;
const NODESIZE: usize = 4096;

#[test]
fn an_old_leaf_stays_in_memory_only_for_its_readers() {
    let world = World::new(NODESIZE);
    let tree = world.tree();
    for number in 0..ITEMS {
        tree.insert(key(number), &[1; 100]).unwrap();
    }
    world.commit();
    let committed = tree.committed();
    let held = tree.get_item(key(0)).unwrap().unwrap();
    tree.get(key(ITEMS - 1)).unwrap();
    let cached_bytes = || world.forest.cache().stats().cached_bytes;
    let before = cached_bytes();
    for number in [0, ITEMS - 1] {
        tree.modify(key(number), |data| data.fill(2)).unwrap();
    }
    assert_eq!(
        before - cached_bytes(),
        2 * NODESIZE as u64,
        "the old leaves, and not the nodes above"
    );
    assert_eq!(held.data(), [1; 100]);
    for number in [0, ITEMS - 1] {
        assert_eq!(tree.get(key(number)).unwrap().unwrap(), [2; 100]);
        assert_eq!(committed.get(key(number)).unwrap().unwrap().data(), [1; 100]);
    }
    world.commit();
    for number in [0, ITEMS - 1] {
        assert_eq!(tree.committed().get(key(number)).unwrap().unwrap().data(), [2; 100]);
    }
}
