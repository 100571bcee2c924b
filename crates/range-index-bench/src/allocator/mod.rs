//! An address allocator: each of sixteen users keeps ten ranges of a nearly full space, and
//! repeatedly frees its oldest and claims another, wherever there is a hole. A measurement runs one
//! user for each of its threads; the others keep their ranges, so the space is equally full for any
//! number of threads.
//!
//! All users claim the first ranges together and share them out. If each claimed ten in a row, the
//! one with the lowest addresses would have the shortest scans forever, since a user that frees a
//! range claims it again if no other runs in between; and with few processors that user would run
//! most.
//!
//! The rivals are common solutions: an ordered map of the used ranges under a lock, searched for a
//! hole from the bottom; the same as a red-black tree, searched from the place of the last claim; a
//! balanced tree that has the largest hole below each node; and two maps of the free ranges, by
//! address and by length.

mod gap_tree;
mod rivals;

use std::collections::{BTreeSet, VecDeque};

use larder_range_index::KEYS_PER_NODE;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::Arguments;
use crate::clock::{Run, below, rate};

use rivals::{
    Allocator, Hinted, LockedBTree, LockedFree, LockedGapTree, LockedRedBlack, Lowest, SMALL_NODE,
};

/// Ranges that each user holds.
const DEPTH: usize = 10;
/// Users that the space has room for, even if fewer take part.
const USERS: usize = 16;
/// The space is full of ranges of this length, except for the users' ranges and a tenth more.
const CELL: u64 = 16;

fn holes(cells: u64) -> BTreeSet<u64> {
    let mut random = SmallRng::seed_from_u64(3);
    let wanted = (USERS * DEPTH * 11 / 10) as u64;
    let mut holes = BTreeSet::new();
    while (holes.len() as u64) < wanted.min(cells / 2) {
        holes.insert(below(&mut random, cells));
    }
    holes
}

/// The ranges that one user holds; freed when dropped.
struct User<'a, A: Allocator> {
    allocator: &'a A,
    cells: u64,
    random: SmallRng,
    ranges: VecDeque<(u64, u64)>,
}

/// A range of about a cell.
fn claim<A: Allocator>(allocator: &A, cells: u64, random: &mut SmallRng) -> (u64, u64) {
    let len = CELL - below(random, 4);
    let hint = below(random, cells * CELL);
    let start = allocator.claim(len, hint).expect("there is a hole for each range");
    (start, len)
}

impl<'a, A: Allocator> User<'a, A> {
    /// All users of the space, each with ranges anywhere in it.
    fn all(allocator: &'a A, cells: u64) -> Vec<Self> {
        let mut random = SmallRng::seed_from_u64(100);
        let mut ranges: Vec<_> =
            (0..USERS * DEPTH).map(|_| claim(allocator, cells, &mut random)).collect();
        ranges.shuffle(&mut random);
        let user = |(me, ranges): (usize, &[(u64, u64)])| User {
            allocator,
            cells,
            random: SmallRng::seed_from_u64(me as u64 + 1),
            ranges: ranges.iter().copied().collect(),
        };
        ranges.chunks(DEPTH).enumerate().map(user).collect()
    }

    fn turn(&mut self) {
        let (start, len) = self.ranges.pop_front().expect("ten ranges");
        self.allocator.free(start, len);
        self.ranges.push_back(claim(self.allocator, self.cells, &mut self.random));
    }
}

impl<A: Allocator> Drop for User<'_, A> {
    fn drop(&mut self) {
        for (start, len) in self.ranges.drain(..) {
            self.allocator.free(start, len);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    per_second: f64,
    /// Per thousand claims.
    blocked: f64,
    /// Per claim.
    held_ns: f64,
}

fn measure<A: Allocator>(allocator: &A, cells: u64, run: Run) -> Outcome {
    let users: Vec<_> =
        User::all(allocator, cells).into_iter().map(|user| Mutex::new(Some(user))).collect();
    let before = allocator.waiting();
    let rate = rate(run, |me, _| {
        let mut user = users[me].lock().take().expect("no more threads than users");
        move || user.turn()
    });
    let after = allocator.waiting();
    Outcome {
        per_second: rate.per_second,
        blocked: (after.blocked - before.blocked) as f64 / rate.turns * 1000.0,
        held_ns: (after.held_ns - before.held_ns) as f64 / rate.turns,
    }
}

/// Measures claims per second of one index with `KEYS` keys per node.
pub(crate) fn measure_index<const KEYS: usize>(cells: u64) -> impl Fn(Run) -> f64 {
    let allocator = Hinted::<KEYS>::with_holes(cells, &holes(cells));
    move |run| measure(&allocator, cells, run).per_second
}

struct Row {
    name: &'static str,
    measure: Box<dyn Fn(Run) -> Outcome>,
}

fn add<A: Allocator + 'static>(arguments: &Arguments, cells: u64, rows: &mut Vec<Row>) {
    if arguments.wants(A::NAME) {
        let allocator = A::with_holes(cells, &holes(cells));
        let measure = Box::new(move |run| measure(&allocator, cells, run));
        rows.push(Row { name: A::NAME, measure });
    }
}

pub(crate) fn print(arguments: &Arguments) {
    for &cells in &arguments.entries {
        let mut rows = Vec::new();
        add::<Hinted<KEYS_PER_NODE>>(arguments, cells, &mut rows);
        add::<Hinted<SMALL_NODE>>(arguments, cells, &mut rows);
        add::<Lowest>(arguments, cells, &mut rows);
        add::<LockedBTree>(arguments, cells, &mut rows);
        add::<LockedRedBlack>(arguments, cells, &mut rows);
        add::<LockedGapTree>(arguments, cells, &mut rows);
        add::<LockedFree>(arguments, cells, &mut rows);
        let mut best = vec![vec![Outcome::default(); arguments.threads.len()]; rows.len()];
        for _ in 0..arguments.repeats {
            for (column, &threads) in arguments.threads.iter().enumerate() {
                for (row, best) in rows.iter().zip(&mut best) {
                    let now = (row.measure)(arguments.run(threads));
                    if now.per_second > best[column].per_second {
                        best[column] = now;
                    }
                }
            }
        }
        print_tables(arguments, cells, &rows, &best);
    }
}

fn print_tables(arguments: &Arguments, cells: u64, rows: &[Row], best: &[Vec<Outcome>]) {
    println!(
        "\n{cells} cells, nearly full: million claims, each with its free, {} (range-index from a hint is so many times as fast)\n",
        arguments.clock.per_second()
    );
    print_table(arguments, rows, best, |cell, first| {
        format!("{:.3} ({:.1})", cell.per_second / 1e6, first.per_second / cell.per_second)
    });
    println!(
        "\n{cells} cells: nanoseconds per claim and free for which a lock is held; blocked acquisitions and repeated edits per thousand claims\n"
    );
    print_table(arguments, rows, best, |cell, _| {
        format!("{:.0} ns; {:.1}", cell.held_ns, cell.blocked)
    });
}

/// A table of the results of `show` for each outcome and that of the first row.
fn print_table(
    arguments: &Arguments,
    rows: &[Row],
    best: &[Vec<Outcome>],
    show: impl Fn(&Outcome, &Outcome) -> String,
) {
    print!("| allocator |");
    for threads in &arguments.threads {
        print!(" {threads} threads |");
    }
    println!("\n| --- |{}", " ---: |".repeat(arguments.threads.len()));
    for (row, cells) in rows.iter().zip(best) {
        let shown = cells.iter().zip(&best[0]).map(|(cell, first)| show(cell, first));
        println!("| `{}` | {} |", row.name, shown.collect::<Vec<_>>().join(" | "));
    }
}
