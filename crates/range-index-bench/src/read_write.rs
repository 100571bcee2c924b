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

/// Operations per second of a map and of the index that was measured in turns with it: the best of
/// each.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    map: f64,
    index: f64,
}

/// The results of a map, by share of edits and by number of threads.
#[derive(Debug)]
struct Row {
    name: &'static str,
    best: Vec<Vec<Option<Best>>>,
}

/// Fills a map, measures it in turns with `index`, and drops it: two maps are in memory at a time.
fn row<M: Map>(arguments: &Arguments, entries: u64, index: &Index, most_threads: usize) -> Row {
    eprintln!("{entries} entries: filling {}", M::NAME);
    let map = filled::<M>(entries);
    // Completes the map after the edits of the last measurement.
    for slot in 0..entries {
        Map::insert(index, slot * STEP, slot * STEP + STEP / 2, slot);
    }
    eprintln!("{entries} entries: measuring {}", M::NAME);
    let cell = |writes, threads| {
        let run = arguments.run(threads);
        let in_turn = |best: Best, _| Best {
            map: best.map.max(measure(&map, entries, writes, run)),
            index: best.index.max(measure(index, entries, writes, run)),
        };
        (threads <= most_threads).then(|| (0..arguments.repeats).fold(Best::default(), in_turn))
    };
    let cells =
        |&writes: &u32| arguments.threads.iter().map(|&threads| cell(writes, threads)).collect();
    let row = Row { name: M::NAME, best: arguments.writes.iter().map(cells).collect() };
    eprintln!("{entries} entries: {row:?}");
    row
}

pub(crate) fn print(arguments: &Arguments) {
    for &entries in &arguments.entries {
        let index = filled::<Index>(entries);
        let mut rows = Vec::new();
        let mut add = |name: &str, row: fn(&Arguments, u64, &Index, usize) -> Row, most_threads| {
            if arguments.wants(name) {
                rows.push(row(arguments, entries, &index, most_threads));
            }
        };
        // A second index shows the meaning of a ratio of 1.
        add(Index::NAME, row::<Index>, usize::MAX);
        add(Unshared::NAME, row::<Unshared>, 1);
        add("RwLock<BTreeMap>", row::<Arc<RwLock<BTreeMap<_, _>>>>, usize::MAX);
        add("Mutex<red-black tree>", row::<Arc<Mutex<RBTree<ByStart>>>>, usize::MAX);
        add("crossbeam-skiplist", row::<Arc<SkipMap<_, _>>>, usize::MAX);
        add(LockFreeTree::NAME, row::<LockFreeTree>, usize::MAX);
        add("scc::TreeIndex", row::<Arc<TreeIndex<_, _>>>, usize::MAX);
        for (nth, writes) in arguments.writes.iter().enumerate() {
            println!(
                "\n{entries} entries, {writes} % edits: million operations {} (the range index beside it is so many times as fast)\n",
                arguments.clock.per_second()
            );
            let cells = rows.iter().map(|row| (row.name, row.best[nth].as_slice()));
            print_table(&arguments.threads, cells);
        }
    }
}

fn print_table<'a>(threads: &[usize], rows: impl Iterator<Item = (&'a str, &'a [Option<Best>])>) {
    print!("| map |");
    for threads in threads {
        print!(" {threads} threads |");
    }
    println!("\n| --- |{}", " ---: |".repeat(threads.len()));
    for (name, cells) in rows {
        print!("| `{name}` |");
        for cell in cells {
            match cell {
                Some(best) => print!(" {} ({:.2}) |", millions(best.map), best.index / best.map),
                None => print!(" |"),
            }
        }
        println!();
    }
}
