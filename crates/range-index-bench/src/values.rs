//! The range index with values of different kinds: plain ones, which an edit copies and an update
//! replaces, and values with a lock and a reference count each, for which an edit counts and an
//! update changes in place.

use std::sync::Arc;

use larder_range_index::RangeIndex;
use parking_lot::Mutex;

use crate::Arguments;
use crate::clock::{Run, below, millions, rate};
use crate::maps::Map;
use crate::read_write::{STEP, filled, measure};

/// A value that is changed in place, by one thread at a time.
type Guarded = Arc<Mutex<u64>>;

trait Updates: Map {
    /// Adds one to the value of the entry that covers the point.
    fn update(&self, point: u64);
}

impl Updates for Arc<RangeIndex<u64>> {
    fn update(&self, point: u64) {
        RangeIndex::update(self, point, |value| value.wrapping_add(1));
    }
}

impl Map for Arc<RangeIndex<Guarded>> {
    const NAME: &'static str = "range-index of guarded values";

    fn new() -> Self {
        Arc::new(RangeIndex::new())
    }

    fn handle(&self) -> Self {
        Arc::clone(self)
    }

    fn insert(&self, start: u64, end: u64, value: u64) -> bool {
        RangeIndex::insert(self, start..end, Arc::new(Mutex::new(value))).is_ok()
    }

    fn remove(&self, start: u64) -> bool {
        RangeIndex::remove(self, start).is_some()
    }

    fn get(&self, point: u64) -> Option<u64> {
        self.reader().get(point).map(|entry| *entry.value.lock())
    }
}

impl Updates for Arc<RangeIndex<Guarded>> {
    fn update(&self, point: u64) {
        if let Some(entry) = self.reader().get(point) {
            let mut value = entry.value.lock();
            *value = value.wrapping_add(1);
        }
    }
}

fn row<M: Updates>(name: &str, arguments: &Arguments, entries: u64) {
    let map = filled::<M>(entries);
    let run = arguments.run(arguments.threads.first().copied().unwrap_or(1));
    let best = |measure: &dyn Fn(Run) -> f64| {
        (0..arguments.repeats).map(|_| measure(run)).fold(0.0, f64::max)
    };
    let read = best(&|run| measure(&map, entries, 0, run));
    let updated = best(&|run| {
        let turn = |_, mut random| {
            let map = &map;
            move || map.update(below(&mut random, entries) * STEP)
        };
        rate(run, turn).per_second
    });
    let written = best(&|run| measure(&map, entries, 100, run));
    println!("| `{name}` | {} | {} | {} |", millions(read), millions(updated), millions(written));
}

pub(crate) fn print(arguments: &Arguments) {
    for &entries in &arguments.entries {
        println!(
            "\n{entries} entries, by kind of value: million operations {}\n",
            arguments.clock.per_second()
        );
        println!("| value | lookups | updates | inserts and removals |");
        println!("| --- | ---: | ---: | ---: |");
        row::<Arc<RangeIndex<u64>>>("u64", arguments, entries);
        row::<Arc<RangeIndex<Guarded>>>("Arc<Mutex<u64>>", arguments, entries);
    }
}
