//! Files that were fsynced survive a power cut: the log that the cut left is replayed.

use std::sync::Arc;

use larder::OpenOptions;
use larder::device::{Device, MemoryDevice};
use larder_mkfs::MkfsOptions;
use larder_power_cuts::{assert_sound_to_larder, survival};
use larder_test_devices::{Event, Recording};
use larder_volume::Volume;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::synced::{State, play};
use super::{make, open};

/// Rounds of work before the cuts, times the effort.
const ROUNDS: usize = 30;
/// One change in so many is cut in two, and so is every flush.
const CHANGES: u32 = 12;

fn has_log(device: &MemoryDevice) -> bool {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device.snapshot())];
    let volume = Volume::open(devices, &larder_volume::OpenOptions::default()).unwrap();
    volume.superblock().log_root.get() != 0
}

/// Works, cuts the power at random points, opens what is left, and checks it against what was
/// promised before the cut.
fn explore(options: &MkfsOptions, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let recording = Recording::new();
    let device = Arc::new(recording.attach(&make(1, options)[0]));
    let fs = open(vec![device], OpenOptions::new());
    let history = play(&fs, &recording, seed, ROUNDS * larder_testkit::effort() as usize);
    drop(fs);
    let mut random = StdRng::seed_from_u64(seed);
    let mut replay = recording.replay();
    let (mut cuts, mut logs) = (0, 0);
    while let Some(entry) = replay.step() {
        if entry.event != Event::Flush && random.random_range(0..CHANGES) > 0 {
            continue;
        }
        let left = Arc::new(replay.power_cut(survival(random.random())).remove(0));
        let what = format!("seed {seed}, cut at {}", replay.position());
        assert_sound_to_larder([&*left], &what);
        logs += usize::from(has_log(&left));
        cuts += 1;
        let fs = open(vec![left.clone()], OpenOptions::new());
        let found = State::of(&fs.subvolume("/").unwrap());
        history.judge(replay.position(), &what, |promised, since| promised.is_kept(since, &found));
        fs.sync().unwrap();
        drop(fs);
        assert_sound_to_larder([&*left], &what);
    }
    println!("{cuts} cuts, {logs} of them with a log");
    assert!(logs > 0, "none of {cuts} cuts left a log");
}

#[test]
fn synced_files_are_there() {
    explore(&MkfsOptions::default(), 1);
}
