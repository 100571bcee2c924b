//! All workloads of one and two operations, each with a power cut at every call that makes
//! something durable.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder::device::{Device, MemoryDevice};
use larder::{OpenOptions, Subvolume};
use larder_mkfs::MkfsOptions;
use larder_power_cuts::{Workload, assert_sound_to_larder, survival};
use larder_test_devices::{Recording, Survival};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::played::{Played, play};
use super::synced::State;
use super::{make, open, small_nodes};

/// One in so many workloads of two operations is done by default, divided by the effort.
const SAMPLED: u64 = 401;

/// The same of those of three operations on subvolumes.
const SAMPLED_ON_SUBVOLUMES: u64 = 1009;
/// The power fails at one in so many changes of the devices.
const CUT_ANYWHERE: u32 = 8;

/// Workloads that begin with the same steps leave the same at a cut after these.
#[derive(Default)]
struct Seen(Mutex<HashSet<u64>>);

impl Seen {
    fn is_new(&self, steps: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        steps.hash(&mut hasher);
        self.0.lock().insert(hasher.finish())
    }
}

/// Does a workload on a copy of `empty`, and cuts the power. Returns the number of cuts.
fn explore(workload: &Workload, empty: &MemoryDevice, seen: &Seen) -> u64 {
    let steps = workload.steps();
    let mut cuts: Vec<usize> = (0..steps.len()).filter(|at| steps[*at].is_durable()).collect();
    cuts.retain(|at| seen.is_new(&&steps[..=*at]));
    if cuts.is_empty() {
        return 0;
    }
    let recording = Recording::new();
    let fs = open(vec![Arc::new(recording.attach(empty))], OpenOptions::new());
    let played = play(workload, &fs, &recording);
    fs.close().unwrap();
    let mut replay = recording.replay();
    for at in &cuts {
        replay.advance_to(played.positions[*at]);
        let left = Arc::new(replay.power_cut(|_, _| Survival::Lost).remove(0));
        judge(workload, &played, replay.position(), &left);
    }
    cuts.len() as u64
}

/// What a cut left is sound, has what was promised before, and can be worked with.
fn judge(workload: &Workload, played: &Played, position: usize, left: &Arc<MemoryDevice>) {
    let what = workload.to_string();
    assert_sound_to_larder([&**left], &what);
    let fs = open(vec![left.clone() as Arc<dyn Device>], OpenOptions::new());
    let root = fs.subvolume("/").unwrap();
    let found = State::of(&root);
    played.history.judge(position, &what, |promised, since| promised.is_kept(since, &found));
    empty_out(&root, &what);
    fs.sync().unwrap();
    drop((root, fs));
    assert_sound_to_larder([&**left], &what);
}

/// Whatever a cut left can be removed, and new files can be made.
fn empty_out(root: &Subvolume, what: &str) {
    for entry in root.root().unwrap().entries().unwrap() {
        let name = entry.unwrap().name().to_owned();
        root.remove_all(&name).unwrap_or_else(|error| panic!("{what}: {name:?} stays: {error}"));
    }
    root.write("new", "content").unwrap_or_else(|error| panic!("{what}: {error}"));
    let names = root.root().unwrap().entries().unwrap().count();
    assert_eq!(names, 1, "{what}");
}

/// Explores workloads on all processors.
fn explore_all(workloads: impl Iterator<Item = Workload> + Send, options: &MkfsOptions) {
    let empty = make(1, options).remove(0);
    let (workloads, seen) = (Mutex::new(workloads), Seen::default());
    let (done, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = || workloads.lock().next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(workload) = next() {
                    let count = explore(&workload, &empty, &seen);
                    cuts.fetch_add(count, Ordering::Relaxed);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done.is_multiple_of(10_000) {
                        println!("{done} workloads");
                    }
                }
            });
        }
    });
    let (done, cuts) = (done.into_inner(), cuts.into_inner());
    println!("{done} workloads, {cuts} cuts");
    assert!(cuts * 2 > done);
}

#[test]
fn all_of_one_operation() {
    explore_all(Workload::of_one(), &MkfsOptions::default());
    explore_all(Workload::of_one(), &small_nodes());
}

#[test]
fn some_of_two_operations() {
    let one_in = (SAMPLED / larder_testkit::effort()).max(1) as usize;
    let first = larder_testkit::seed(0) as usize % one_in;
    explore_all(Workload::of_two().skip(first).step_by(one_in), &MkfsOptions::default());
}

#[test]
fn some_on_subvolumes() {
    let one_in = (SAMPLED_ON_SUBVOLUMES / larder_testkit::effort()).max(1) as usize;
    let first = larder_testkit::seed(0) as usize % one_in;
    let two = Workload::of_two_on_subvolumes().step_by(5);
    let three = Workload::of_three_on_subvolumes().skip(first).step_by(one_in);
    explore_all(two.chain(three), &MkfsOptions::default());
}

/// The power fails at any point, and what was not flushed survives in part.
#[test]
fn one_operation_cut_anywhere() {
    for options in [MkfsOptions::default(), small_nodes()] {
        let empty = make(1, &options).remove(0);
        let mut random = StdRng::seed_from_u64(larder_testkit::seed(3));
        let mut cuts = 0;
        for workload in Workload::of_one() {
            let recording = Recording::new();
            let fs = open(vec![Arc::new(recording.attach(&empty))], OpenOptions::new());
            let played = play(&workload, &fs, &recording);
            fs.close().unwrap();
            let mut replay = recording.replay();
            while replay.step().is_some() {
                if random.random_ratio(1, CUT_ANYWHERE) {
                    let left = replay.power_cut(survival(random.random())).remove(0);
                    judge(&workload, &played, replay.position(), &Arc::new(left));
                    cuts += 1;
                }
            }
        }
        println!("{cuts} cuts");
    }
}

#[test]
#[ignore = "takes minutes"]
fn all_on_subvolumes() {
    explore_all(Workload::of_two_on_subvolumes(), &MkfsOptions::default());
    explore_all(Workload::of_three_on_subvolumes(), &small_nodes());
}

#[test]
#[ignore = "takes ten minutes"]
fn all_of_two_operations() {
    explore_all(Workload::of_two(), &MkfsOptions::default());
}
