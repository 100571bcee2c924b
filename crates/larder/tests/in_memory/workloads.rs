//! All workloads of one and two operations, each with a power cut at every call that makes
//! something durable.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder::device::{Device, MemoryDevice};
use larder::{CompressionAlgorithm, Filesystem, OpenOptions, Subvolume, WriteCompression};
use larder_format::Profile;
use larder_mkfs::MkfsOptions;
use larder_power_cuts::{Workload, assert_sound_to_larder, survival};
use larder_test_devices::{Recording, Survival};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::played::{Played, play};
use super::synced::State;
use super::{as_dyn, make, open, small_nodes};

/// One in so many workloads of two operations is done by default, divided by the effort.
const SAMPLED: u64 = 1009;
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

/// The file system that workloads are done to.
struct Setting {
    empty: Vec<Arc<MemoryDevice>>,
    compression: Option<WriteCompression>,
}

impl Setting {
    fn new(devices: usize, options: &MkfsOptions) -> Self {
        Self { empty: make(devices, options), compression: None }
    }

    fn open(&self, devices: Vec<Arc<dyn Device>>) -> Filesystem {
        open(devices, OpenOptions::new().compression(self.compression))
    }

    /// Does a workload on copies of the devices.
    fn play(&self, workload: &Workload, recording: &Recording) -> Played {
        let attach = |device: &Arc<MemoryDevice>| Arc::new(recording.attach(device)) as Arc<_>;
        let fs = self.open(self.empty.iter().map(attach).collect());
        let played = play(workload, &fs, recording);
        fs.close().unwrap();
        played
    }

    /// Does a workload, and cuts the power at each call that makes something durable. Returns the
    /// number of cuts.
    fn explore(&self, workload: &Workload, seen: &Seen) -> u64 {
        let steps = workload.steps();
        let mut cuts: Vec<usize> = (0..steps.len()).filter(|at| steps[*at].is_durable()).collect();
        cuts.retain(|at| seen.is_new(&&steps[..=*at]));
        if cuts.is_empty() {
            return 0;
        }
        let recording = Recording::new();
        let played = self.play(workload, &recording);
        let mut replay = recording.replay();
        for at in &cuts {
            replay.advance_to(played.positions[*at]);
            let left = replay.power_cut(|_, _| Survival::Lost);
            self.judge(workload, &played, replay.position(), left);
        }
        cuts.len() as u64
    }

    /// What a cut left is sound, has what was promised before, and can be worked with.
    fn judge(
        &self,
        workload: &Workload,
        played: &Played,
        position: usize,
        left: Vec<MemoryDevice>,
    ) {
        let what = workload.to_string();
        let left: Vec<Arc<MemoryDevice>> = left.into_iter().map(Arc::new).collect();
        assert_sound_to_larder(left.iter().map(|device| &**device), &what);
        let fs = self.open(as_dyn(&left));
        let root = fs.subvolume("/").unwrap();
        let found = State::of(&root);
        played.history.judge(position, &what, |promised, since| promised.is_kept(since, &found));
        empty_out(&root, &what);
        fs.close().unwrap();
        assert_sound_to_larder(left.iter().map(|device| &**device), &what);
    }
}

/// Whatever a cut left can be removed, and new files can be made.
fn empty_out(root: &Subvolume, what: &str) {
    for entry in root.root().unwrap().entries().unwrap() {
        let name = entry.unwrap().name().to_owned();
        root.remove_all(&name)
            .unwrap_or_else(|error| panic!("{what}: {} stays: {error}", name.display()));
    }
    root.write("new", "content").unwrap_or_else(|error| panic!("{what}: {error}"));
    let names = root.root().unwrap().entries().unwrap().count();
    assert_eq!(names, 1, "{what}");
}

/// Explores workloads on all processors.
fn explore_all(workloads: impl Iterator<Item = Workload> + Send, setting: &Setting) {
    let (workloads, seen) = (Mutex::new(workloads), Seen::default());
    let (done, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = || workloads.lock().next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(workload) = next() {
                    cuts.fetch_add(setting.explore(&workload, &seen), Ordering::Relaxed);
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

/// The settings that differ most.
fn settings() -> [Setting; 4] {
    let zstd = WriteCompression { compression: CompressionAlgorithm::Zstd.into(), force: true };
    let raid1 = MkfsOptions { data_profile: Some(Profile::Raid1), ..MkfsOptions::default() };
    let compressed = Setting::new(1, &MkfsOptions::default());
    [
        Setting::new(1, &MkfsOptions::default()),
        Setting::new(1, &small_nodes()),
        Setting { compression: Some(zstd), ..compressed },
        Setting::new(2, &raid1),
    ]
}

/// One in so many of these, beginning with another one for each seed.
fn sample(
    workloads: impl Iterator<Item = Workload>,
    one_in: u64,
) -> impl Iterator<Item = Workload> {
    let one_in = (one_in / larder_testkit::effort()).max(1) as usize;
    workloads.skip(larder_testkit::seed(0) as usize % one_in).step_by(one_in)
}

#[test]
fn all_of_one_operation() {
    for setting in settings() {
        explore_all(Workload::of_one(), &setting);
    }
}

#[test]
fn some_of_two_operations() {
    for setting in settings() {
        explore_all(sample(Workload::of_two(), SAMPLED), &setting);
    }
}

#[test]
fn some_on_subvolumes() {
    let two = sample(Workload::of_two_on_subvolumes(), 11);
    let three = sample(Workload::of_three_on_subvolumes(), SAMPLED_ON_SUBVOLUMES);
    explore_all(two.chain(three), &Setting::new(1, &MkfsOptions::default()));
}

/// The power fails at any point, and what was not flushed survives in part.
#[test]
fn one_operation_cut_anywhere() {
    let mut random = StdRng::seed_from_u64(larder_testkit::seed(3));
    for setting in settings() {
        let mut cuts = 0;
        for workload in Workload::of_one() {
            let recording = Recording::new();
            let played = setting.play(&workload, &recording);
            let mut replay = recording.replay();
            while replay.step().is_some() {
                if random.random_ratio(1, CUT_ANYWHERE) {
                    let left = replay.power_cut(survival(random.random()));
                    setting.judge(&workload, &played, replay.position(), left);
                    cuts += 1;
                }
            }
        }
        println!("{cuts} cuts");
    }
}

#[test]
#[ignore = "takes ten minutes"]
fn all_on_subvolumes() {
    explore_all(Workload::of_two_on_subvolumes(), &Setting::new(1, &MkfsOptions::default()));
    explore_all(Workload::of_three_on_subvolumes(), &Setting::new(1, &small_nodes()));
}

#[test]
#[ignore = "takes ten minutes"]
fn all_of_two_operations() {
    explore_all(Workload::of_two(), &Setting::new(1, &MkfsOptions::default()));
}
