//! Heights: how many links a new node gets, so that a search enters few nodes at any level.
//!
//! Between two nodes that have a link at a level lies a *run* of nodes that end one level below. A
//! search walks along one run at each level. Were heights drawn blindly, a run would have one node
//! on average, but often none, which makes the list a level higher for nothing, and often many,
//! which is where searches spend their steps. So a new node looks at the run that it comes into,
//! and closes it, by rising above, if one or two others are there already. It goes on to the next
//! level as long as that is so. A search enters two thirds of the nodes that it would enter among
//! heights drawn blindly.
//!
//! - One or two, by lot: else a list that is filled in order would have towers at regular
//!   distances, and removals at regular distances could take them all. As it is, nothing that goes
//!   by address takes more of the high nodes than of the others.
//! - Nodes never grow, so removals can leave runs that are too long. A new node in such a run
//!   rises above it.
//! - A height is a guess about a list that changes: a node may miss links that other threads add
//!   meanwhile. Only the length of searches depends on it.

use crossbeam_epoch::Guard;

use crate::node::NodeRef;
use crate::search::Path;
use crate::slabs::MAX_HEIGHT;

/// The height of a new node whose tile will begin at `low`. `path` leads to the node whose tile
/// holds `low` now.
pub(crate) fn height_for<V>(path: &Path<'_, V>, low: u64, guard: &Guard) -> usize {
    let lots = lots(low);
    let rises = |level: usize| run_has(path.at(level), level, 1 + (lots >> level & 1), guard);
    (1..MAX_HEIGHT).find(|&level| !rises(level)).unwrap_or(MAX_HEIGHT)
}

/// Whether at least `count` nodes that end below `level` follow `node`, which has a link there.
fn run_has<V>(node: NodeRef<'_, V>, level: usize, count: u64, guard: &Guard) -> bool {
    let end = node.link(level).next(guard);
    let mut at = node;
    (0..count).all(|_| match at.link(level - 1).next(guard) {
        Some(next) if Some(next) != end => {
            at = next;
            true
        }
        _ => false,
    })
}

/// Bits that show no pattern of addresses: those of the address, mixed as SplitMix64 does.
fn lots(address: u64) -> u64 {
    let mut z = address.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(all(test, not(feature = "shuttle"), not(miri)))]
mod tests {
    use crossbeam_epoch as epoch;

    use super::*;
    use crate::RangeIndex;

    type Index = RangeIndex<u64, 4>;

    /// Entries of an index, some four to a node.
    const ENTRIES: u64 = 20_000;

    fn insert(index: &Index, slot: u64) {
        index.insert(slot * 4..slot * 4 + 2, slot).unwrap();
    }

    /// All slots, in an order without a pattern.
    fn shuffled() -> Vec<u64> {
        let mut slots: Vec<u64> = (0..ENTRIES).collect();
        slots.sort_by_key(|&slot| lots(slot));
        slots
    }

    /// How many nodes a search enters, on average over all that it could end in, for each halving
    /// of their number; and at most.
    fn entered(index: &Index) -> (f64, f64) {
        let guard = &epoch::pin();
        // The nodes that a search for the last one has entered, by height: each is the last that is
        // as high as the next.
        let mut heights: Vec<usize> = Vec::new();
        let (mut nodes, mut sum, mut most) = (0u64, 0, 0);
        let mut at = index.list.head(guard).link(0).next(guard);
        while let Some(node) = at {
            while heights.last().is_some_and(|&height| height < node.height()) {
                heights.pop();
            }
            heights.push(node.height());
            nodes += 1;
            sum += heights.len();
            most = most.max(heights.len());
            at = node.link(0).next(guard);
        }
        let halvings = (nodes as f64).log2();
        (sum as f64 / nodes as f64 / halvings, most as f64 / halvings)
    }

    /// Blindly drawn heights come to 0.85 and more on average, and 2.5 at most.
    fn assert_balanced(index: &Index, what: &str) {
        let (mean, most) = entered(index);
        assert!(mean < 0.78 && most < 2.3, "{what}: {mean:.2}, {most:.2}");
    }

    #[test]
    fn searches_enter_few_nodes_for_any_order_of_inserts() {
        let orders = [
            ("ascending", (0..ENTRIES).collect::<Vec<_>>()),
            ("descending", (0..ENTRIES).rev().collect()),
            ("shuffled", shuffled()),
        ];
        for (what, order) in orders {
            let index = Index::with_node_size();
            for slot in order {
                insert(&index, slot);
            }
            assert_balanced(&index, what);
        }
    }

    #[test]
    fn searches_enter_few_nodes_while_entries_come_and_go() {
        let index = Index::with_node_size();
        let slots = shuffled();
        let (first, second) = slots.split_at(slots.len() / 2);
        for &slot in first {
            insert(&index, slot);
        }
        for (old, new) in [(first, second), (second, first), (first, second)] {
            for (&old, &new) in old.iter().zip(new) {
                index.remove(old * 4).unwrap();
                insert(&index, new);
            }
            assert_balanced(&index, "all replaced");
        }
    }

    #[test]
    fn searches_enter_few_nodes_of_a_window_that_moves() {
        let index = Index::with_node_size();
        for slot in 0..3 * ENTRIES {
            insert(&index, slot);
            if slot >= ENTRIES {
                index.remove((slot - ENTRIES) * 4).unwrap();
            }
        }
        assert_balanced(&index, "moved");
    }

    #[test]
    fn removals_at_regular_distances_leave_high_nodes() {
        for (distance, stays) in
            (2..7).flat_map(|distance| (0..distance).map(move |at| (distance, at)))
        {
            let index = Index::with_node_size();
            (0..ENTRIES).for_each(|slot| insert(&index, slot));
            // Filled in order, nodes have four entries each: all but one of so many nodes go.
            for slot in (0..ENTRIES).filter(|slot| slot / 4 % distance != stays) {
                index.remove(slot * 4).unwrap();
            }
            let (mean, most) = entered(&index);
            assert!(mean < 1.5 && most < 4.0, "{stays} of {distance}: {mean:.2}, {most:.2}");
        }
    }
}
