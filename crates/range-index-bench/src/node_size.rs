//! The range index with different numbers of keys per node.

use std::sync::Arc;

use larder_range_index::RangeIndex;

use crate::Arguments;
use crate::allocator;
use crate::clock::millions;
use crate::read_write::{filled, measure};

fn row<const KEYS: usize>(arguments: &Arguments, entries: u64) {
    let map = filled::<Arc<RangeIndex<u64, KEYS>>>(entries);
    let run = arguments.run(arguments.threads.first().copied().unwrap_or(1));
    let best = |writes| {
        (0..arguments.repeats).map(|_| measure(&map, entries, writes, run)).fold(0.0, f64::max)
    };
    let (read, mixed, written) = (best(0), best(50), best(100));
    let claim = allocator::measure_index::<KEYS>(entries);
    let claims = (0..arguments.repeats).map(|_| claim(run)).fold(0.0, f64::max);
    println!(
        "| {KEYS} | {} | {} | {} | {} |",
        millions(read),
        millions(mixed),
        millions(written),
        millions(claims)
    );
}

pub(crate) fn print(arguments: &Arguments) {
    for &entries in &arguments.entries {
        println!(
            "\n{entries} entries, by keys per node: million operations {}\n",
            arguments.clock.per_second()
        );
        println!("| keys | lookups | 50 % edits | edits | claim and free |");
        println!("| ---: | ---: | ---: | ---: | ---: |");
        row::<8>(arguments, entries);
        row::<16>(arguments, entries);
        row::<24>(arguments, entries);
        row::<32>(arguments, entries);
        row::<48>(arguments, entries);
        row::<64>(arguments, entries);
        row::<96>(arguments, entries);
        row::<128>(arguments, entries);
    }
}
