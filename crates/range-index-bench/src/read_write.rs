//! Lookups of random points, with a share of edits: inserts and removals in equal numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use intrusive_collections::RBTree;
use parking_lot::{Mutex, RwLock};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use scc::TreeIndex;

use crate::Arguments;
use crate::clock::{Run, below, millions, rate};
use crate::maps::{ByStart, Index, LockFreeTree, Map, Unshared};

/// Distance between the starts of two ranges, which are half as long.
pub(crate) const STEP: u64 = 16;

/// A map with `entries` ranges, inserted in random order.
pub(crate) fn filled<M: Map>(entries: u64) -> M {
    let mut order: Vec<u64> = (0..entries).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(7));
    let map = M::new();
    for slot in order {
        assert!(map.insert(slot * STEP, slot * STEP + STEP / 2, slot));
    }
    map
}

/// Operations per second.
pub(crate) fn measure<M: Map>(map: &M, entries: u64, writes: u32, run: Run) -> f64 {
    let handles: Vec<_> =
        (0..run.threads).map(|_| Mutex::new((run.threads > 1).then(|| map.handle()))).collect();
    let result = rate(run, |me, mut random| {
        let own = handles[me].lock().take();
        move || {
            let map = own.as_ref().unwrap_or(map);
            let slot = below(&mut random, entries);
            if below(&mut random, 100) >= u64::from(writes) {
                std::hint::black_box(map.get(slot * STEP + slot % STEP));
            } else if below(&mut random, 2) == 0 {
                map.remove(slot * STEP);
            } else {
                map.insert(slot * STEP, slot * STEP + STEP / 2, slot);
            }
        }
    });
    result.per_second
}

/// One map, measured at all thread counts.
struct Row {
    name: &'static str,
    measure: Box<dyn Fn(u32, Run) -> Option<f64>>,
}

fn row<M: Map + 'static>(entries: u64, most_threads: usize) -> Row {
    let map = filled::<M>(entries);
    let measure = move |writes, run: Run| {
        (run.threads <= most_threads).then(|| measure(&map, entries, writes, run))
    };
    Row { name: M::NAME, measure: Box::new(measure) }
}

pub(crate) fn print(arguments: &Arguments) {
    for &entries in &arguments.entries {
        let mut rows = Vec::new();
        let mut add = |name: &str, row: &dyn Fn() -> Row| {
            if arguments.wants(name) {
                rows.push(row());
            }
        };
        add(Index::NAME, &|| row::<Index>(entries, usize::MAX));
        add(Unshared::NAME, &|| row::<Unshared>(entries, 1));
        add("RwLock", &|| row::<Arc<RwLock<BTreeMap<_, _>>>>(entries, usize::MAX));
        add("red-black", &|| row::<Arc<Mutex<RBTree<ByStart>>>>(entries, usize::MAX));
        add("skiplist", &|| row::<Arc<SkipMap<_, _>>>(entries, usize::MAX));
        add("concurrent-map", &|| row::<LockFreeTree>(entries, usize::MAX));
        add("scc", &|| row::<Arc<TreeIndex<_, _>>>(entries, usize::MAX));
        for &writes in &arguments.writes {
            print_table(arguments, entries, writes, &rows);
        }
    }
}

fn print_table(arguments: &Arguments, entries: u64, writes: u32, rows: &[Row]) {
    println!(
        "\n{entries} entries, {writes} % edits: million operations {} (range-index is so many times as fast)\n",
        arguments.clock.per_second()
    );
    print!("| map |");
    for threads in &arguments.threads {
        print!(" {threads} threads |");
    }
    println!("\n| --- |{}", " ---: |".repeat(arguments.threads.len()));
    let mut best = vec![vec![None; arguments.threads.len()]; rows.len()];
    for _ in 0..arguments.repeats {
        for (column, &threads) in arguments.threads.iter().enumerate() {
            for (row, best) in rows.iter().zip(&mut best) {
                let now = (row.measure)(writes, arguments.run(threads));
                best[column] = now.into_iter().chain(best[column]).reduce(f64::max);
            }
        }
    }
    for (row, cells) in rows.iter().zip(&best) {
        print!("| `{}` |", row.name);
        for (column, cell) in cells.iter().enumerate() {
            match cell {
                Some(cell) => {
                    let ratio = best[0][column].unwrap_or(f64::NAN) / cell;
                    print!(" {} ({ratio:.2}) |", millions(*cell));
                }
                None => print!(" |"),
            }
        }
        println!();
    }
}
