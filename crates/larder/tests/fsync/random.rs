//! Random work with syncs, and power cuts at random points.

use std::sync::Arc;

use larder_power_cuts::survival;
use larder_test_devices::Event;
use larder_testkit::Feature;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::synced::{State, play};
use super::*;

/// Plays, cuts the power at random points, and judges the result. Returns how many cuts there were,
/// and in how many of them there was a log.
fn explore(spec: &ImageSpec, seed: u64, rounds: usize) -> (usize, usize) {
    println!("seed {seed}");
    let image = KernelImage::empty(spec);
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&load(&image.devices()[0]))));
    let history = play(&fs, &recording, seed, rounds);
    let mut random = StdRng::seed_from_u64(seed + 1);
    let mut replay = recording.replay();
    let (mut cuts, mut logged) = (0, 0);
    while let Some(entry) = replay.step() {
        let is_flush = entry.event == Event::Flush;
        if !is_flush && random.random_range(0..12) > 0 {
            continue;
        }
        let device = replay.power_cut(survival(random.random()));
        let device = device.into_iter().next().unwrap();
        let what = format!("{} with seed {seed}", spec.name());
        assert_sound([&device], &what);
        logged += usize::from(has_log(&device));
        cuts += 1;
        if cuts % 40 == 0 {
            recover(&image, &device, &what);
        }
        let recovered = Arc::new(device.snapshot());
        let fs = open(recovered.clone());
        let found = State::of(&fs.subvolume("/").unwrap());
        history.judge(replay.position(), &what, |promised, since| promised.is_kept(since, &found));
        if cuts % 4 == 0 {
            fs.sync().unwrap();
            drop(fs);
            assert_sound([&*recovered], &what);
        }
    }
    (cuts, logged)
}

fn explore_all(seeds: impl Iterator<Item = u64>, rounds: usize) {
    let specs = [
        ImageSpec::new("default"),
        ImageSpec::new("small-nodes").node_size(4096).without(Feature::NoHoles),
    ];
    let (mut cuts, mut logged) = (0, 0);
    for seed in seeds {
        let (more_cuts, more_logged) = explore(&specs[seed as usize % specs.len()], seed, rounds);
        cuts += more_cuts;
        logged += more_logged;
        println!("seed {seed}: {cuts} cuts, {logged} with logs");
    }
    assert!(logged * 4 > cuts, "{logged} of {cuts}");
}

#[test]
fn promises_are_kept_in_power_cuts() {
    let first = larder_testkit::seed(1);
    explore_all(first..first + 4 * larder_testkit::effort(), 80);
}
