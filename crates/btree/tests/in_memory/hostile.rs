//! Trees whose blocks were changed at random: nothing may panic, hang or leave a key out of order.

use larder_btree::{Readahead, TreeView};
use proptest::prelude::*;

use crate::support::{Built, build, items, key};

/// A changed byte of a block: the block by level and place, the offset in it, and the new value.
#[derive(Clone, Debug)]
struct Damage {
    level: usize,
    block: usize,
    place: usize,
    value: u8,
}

fn any_damage() -> impl Strategy<Value = Damage> {
    // Headers and the bytes after them decide more than the rest.
    let place = prop_oneof![2 => 48..101_usize, 3 => 101..400_usize, 1 => 0..4096_usize];
    (0..3_usize, 0..1000_usize, place, any::<u8>())
        .prop_map(|(level, block, place, value)| Damage { level, block, place, value })
}

fn damage(built: &Built, all: &[Damage]) {
    for damage in all {
        let level = &built.levels[damage.level.min(built.levels.len() - 1)];
        let (_, logical) = level[damage.block % level.len()];
        built.store.damage(logical, |bytes| bytes[damage.place] = damage.value);
    }
}

fn walk(view: &TreeView, most: usize, forward: bool) {
    let mut cursor = view.cursor(Readahead::ForwardAlways);
    let mut before = None;
    let mut moved = if forward { cursor.next() } else { cursor.prev() };
    for _ in 0..most {
        match moved {
            Ok(false) => return,
            Ok(true) => {
                let (key, data) = cursor.item().expect("it stands at an item");
                let _ = data.len();
                assert!(before.is_none_or(|b| if forward { b < key } else { b > key }));
                before = Some(key);
                moved = if forward { cursor.next() } else { cursor.prev() };
            }
            Err(_) => moved = cursor.skip_subtree(),
        }
    }
    panic!("a walk of {most} steps did not end");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_trees_are_read_as_far_as_they_go(
        damages in prop::collection::vec(any_damage(), 1..12),
    ) {
        let built = build(4096, 6, &items(300, 30));
        damage(&built, &damages);
        for view in built.views() {
            // Every block has at most as many items as fit its size.
            let most = built.levels.iter().map(Vec::len).sum::<usize>() * 160;
            walk(&view, most, true);
            walk(&view, most, false);
            for n in 0..620 {
                let found = view.get(key(n));
                assert!(found.ok().flatten().is_none_or(|item| item.key() == key(n)));
            }
        }
    }

    #[test]
    fn damaged_trees_can_be_changed_without_a_panic(
        damages in prop::collection::vec(any_damage(), 1..12),
        numbers in prop::collection::vec(0..620_u64, 1..60),
    ) {
        let built = build(4096, 6, &items(300, 30));
        damage(&built, &damages);
        let [_, TreeView::Live(tree)] = built.views() else { unreachable!() };
        for n in numbers {
            let _ = match n % 5 {
                0 => tree.put(key(n), &[1; 700]),
                1 => tree.insert(key(n), &[1; 50]),
                2 => tree.delete(key(n)).map(drop),
                3 => tree.delete_range(key(n)..=key(n + 40)).map(drop),
                _ => tree.extend(key(n), &[2; 300]),
            };
        }
    }
}
