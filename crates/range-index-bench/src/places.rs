//! The access patterns of a file system's other range maps, on the index and on simpler structures,
//! to find the best for each.
//!
//! - *pinned*: threads record extents that they freed; now and then one thread takes all of them,
//!   in order of address and merged, as a commit does.
//! - *dirty*: one thread, under a lock that it has anyway, records writes to a file, mostly
//!   appending, and now and then takes all of them in order, as writeback does.
//! - *extents*: threads look up the extents of one file.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_range_index::RangeIndex;
use parking_lot::Mutex;
use rand::rngs::SmallRng;

use crate::Arguments;
use crate::clock::{Run, below, millions, rate};
use crate::extents::{self, Extents, extents};

/// Extents are pinned, and pages dirty, in units of this many bytes.
const UNIT: u64 = 16 << 10;
/// Ranges that are recorded before all are taken.
const BATCH: u64 = 20_000;
/// The address space in units: large against a batch.
const UNITS: u64 = 1 << 20;

/// Ranges that are recorded and then all taken, sorted and merged.
trait Noted: Sync + Default {
    const NAME: &'static str;

    /// Records a range of one unit; an existing one may be recorded again.
    fn note(&self, start: u64);
    fn take_all(&self) -> Vec<Range<u64>>;
}

/// Pushes, and sorts on taking.
#[derive(Default)]
struct SortedLater(Mutex<Vec<Range<u64>>>);

impl Noted for SortedLater {
    const NAME: &'static str = "Mutex<Vec>, sorted when taken";

    fn note(&self, start: u64) {
        self.0.lock().push(start..start + UNIT);
    }

    fn take_all(&self) -> Vec<Range<u64>> {
        let mut ranges = std::mem::take(&mut *self.0.lock());
        ranges.sort_unstable_by_key(|range| range.start);
        merged(ranges)
    }
}

#[derive(Default)]
struct LockedBTree(Mutex<BTreeMap<u64, u64>>);

impl Noted for LockedBTree {
    const NAME: &'static str = "Mutex<BTreeMap>";

    fn note(&self, start: u64) {
        let mut map = self.0.lock();
        match map.range_mut(..=start).next_back() {
            Some((_, end)) if *end > start => {}
            Some((_, end)) if *end == start => *end += UNIT,
            _ => drop(map.insert(start, start + UNIT)),
        }
    }

    fn take_all(&self) -> Vec<Range<u64>> {
        let map = std::mem::take(&mut *self.0.lock());
        merged(map.into_iter().map(|(start, end)| start..end))
    }
}

#[derive(Default)]
struct Index(RangeIndex<u64>);

impl Noted for Index {
    const NAME: &'static str = "range-index";

    fn note(&self, start: u64) {
        if self.0.insert(start..start + UNIT, 0).is_ok() {
            self.0.merge_at(start, |_, _| Some(0));
        }
    }

    fn take_all(&self) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        let mut at = 0;
        while let Some((range, _)) = self.0.first_at_or_after(at) {
            at = range.end;
            // Another thread may have merged it meanwhile: take the current range.
            taken.extend(self.0.remove(range.start).map(|(range, _)| range));
        }
        merged(taken)
    }
}

fn merged(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Records ranges from all threads; the first takes them all now and then.
fn pinned<N: Noted>(run: Run) -> f64 {
    let noted = N::default();
    note_and_take(&noted, run, |random| below(random, UNITS))
}

/// Mostly records the unit after the last, and at times one elsewhere.
fn dirty<N: Noted>(run: Run) -> f64 {
    let noted = N::default();
    let at = std::sync::atomic::AtomicU64::new(0);
    note_and_take(&noted, run, |random| {
        if below(random, 8) > 0 {
            return at.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % UNITS;
        }
        below(random, UNITS)
    })
}

fn note_and_take<N: Noted>(noted: &N, run: Run, unit: impl Fn(&mut SmallRng) -> u64 + Sync) -> f64 {
    rate(run, |me, mut random| {
        let (mut count, unit) = (0, &unit);
        move || {
            noted.note(unit(&mut random) * UNIT);
            count += 1;
            if me == 0 && count % (BATCH / run.threads as u64) == 0 {
                std::hint::black_box(noted.take_all());
            }
        }
    })
    .per_second
}

type Measure = fn(Run) -> f64;

pub(crate) fn print(arguments: &Arguments) {
    let noted = |measures: [Measure; 3]| {
        let names = [SortedLater::NAME, LockedBTree::NAME, Index::NAME];
        names.into_iter().zip(measures).collect::<Vec<_>>()
    };
    let places = [
        ("pinned", noted([pinned::<SortedLater>, pinned::<LockedBTree>, pinned::<Index>])),
        ("dirty", noted([dirty::<SortedLater>, dirty::<LockedBTree>, dirty::<Index>])),
        (
            "extents",
            vec![
                (extents::Exclusive::NAME, extents::<extents::Exclusive> as Measure),
                (extents::Shared::NAME, extents::<extents::Shared>),
                (extents::Index::NAME, extents::<extents::Index>),
            ],
        ),
    ];
    for (place, rows) in places {
        println!("\n{place}: million operations {}\n", arguments.clock.per_second());
        print!("| structure |");
        for threads in &arguments.threads {
            print!(" {threads} threads |");
        }
        println!("\n| --- |{}", " ---: |".repeat(arguments.threads.len()));
        let mut best = vec![vec![0.0_f64; arguments.threads.len()]; rows.len()];
        for _ in 0..arguments.repeats {
            for (column, &threads) in arguments.threads.iter().enumerate() {
                for ((_, measure), best) in rows.iter().zip(&mut best) {
                    best[column] = best[column].max(measure(arguments.run(threads)));
                }
            }
        }
        for ((name, _), cells) in rows.iter().zip(&best) {
            let cells: Vec<String> = cells.iter().map(|cell| millions(*cell)).collect();
            println!("| `{name}` | {} |", cells.join(" | "));
        }
    }
}
