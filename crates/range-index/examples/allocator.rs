//! A disk's space shared by threads that allocate, use and free extents.
//! `cargo run -p larder-range-index --example allocator`

use std::thread;

use larder_range_index::{Order, RangeIndex, Request};

const KIB: u64 = 1024;

fn main() {
    // Ranges in use map to their threads. The first megabyte is reserved.
    let space = RangeIndex::new();
    space.insert(0..1024 * KIB, usize::MAX).expect("the space is empty");

    thread::scope(|scope| {
        for me in 0..4 {
            let space = &space;
            scope.spawn(move || {
                // Each thread starts at a place of its own.
                let hint = me as u64 * 4096 * KIB;
                let request = Request::new(16 * KIB)
                    .align(4 * KIB)
                    .within(0..64 * 1024 * KIB)
                    .order(Order::From(hint));
                let mut mine = Vec::new();
                for turn in 0..1000 {
                    let start = space.claim(&request, me).expect("there is plenty of room");
                    mine.push(start);
                    if turn % 3 == 0 {
                        let freed = mine.swap_remove(turn % mine.len());
                        space.remove(freed).expect("what was claimed is there");
                    }
                }
                // An extent can be trimmed, split and joined where it is.
                let last = mine[mine.len() - 1];
                space.resize(last, last..last + 4 * KIB).expect("smaller always fits");
                space.split_at(last + KIB, |whole| *whole.value);
                space.merge_at(last + KIB, |left, _| Some(*left));
            });
        }
    });

    println!("{} extents cover {} KiB", space.len(), space.covered() / KIB);
    let reader = space.reader();
    for entry in reader.ascending(0..8 * 1024 * KIB).take(3) {
        println!("{:>9}..{:<9} thread {:?}", entry.start, entry.end, entry.value);
    }
    if let Some(top) = reader.last_at_or_before(u64::MAX) {
        println!("the last one ends at {}", top.end);
    }
    println!("writers waited: {:?}", space.stats());
}
