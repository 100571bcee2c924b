//! Threads that do everything, each in its folder, with syncs, snapshots and their deletion in
//! between.

use std::time::Duration;

use larder::{
    CompressionAlgorithm, Filesystem, OpenOptions, SnapshotKind, Subvolume, WriteCompression,
};
use larder_test_devices::Recording;
use larder_testkit::{Feature, ImageSpec, Profile};

use super::super::model::Player;
use super::history::{Clock, History, Lane, Snapshot, State, Sync};
use super::{Work, explore};

/// Threads, and how many steps each takes.
struct Players<const THREADS: usize, const STEPS: usize> {
    history: History,
}

impl<const THREADS: usize, const STEPS: usize> Work for Players<THREADS, STEPS> {
    fn record(fs: &Filesystem, recording: &Recording, seed: u64) -> (Self, usize) {
        let root = fs.subvolume("/").unwrap();
        let clock = Clock::default();
        let folder = |number: usize| format!("lane-{number}");
        for number in 0..THREADS {
            root.create_directory(folder(number), 0o755).unwrap();
        }
        let mut history = History::default();
        history.sync(fs, &clock, recording);
        let first = recording.position();
        std::thread::scope(|scope| {
            let (root, clock) = (&root, &clock);
            let lanes: Vec<_> = (0..THREADS)
                .map(|number| {
                    let player = Player::new(&folder(number), seed * 100 + number as u64);
                    scope.spawn(move || play(player, folder(number), STEPS, root, clock))
                })
                .collect();
            while lanes.iter().any(|lane| !lane.is_finished()) {
                history.sync(fs, clock, recording);
                history.snapshot(root, clock, recording);
            }
            history.lanes = lanes.into_iter().map(|lane| lane.join().unwrap()).collect();
        });
        history.sync(fs, &clock, recording);
        history.finish();
        (Self { history }, first)
    }

    fn judge(&self, root: &Subvolume, position: usize) {
        self.history.judge(root, position);
    }

    fn folders(&self) -> Vec<String> {
        self.history.lanes.iter().map(|lane| lane.folder.clone()).collect()
    }
}

fn play(mut player: Player, folder: String, steps: usize, root: &Subvolume, clock: &Clock) -> Lane {
    let mut states = vec![State { begun: 0, done: 0, model: player.model.clone() }];
    for _ in 0..steps {
        let begun = clock.now();
        player.play(root, 1);
        states.push(State { begun, done: clock.now(), model: player.model.clone() });
        // So that other threads have their turn, however few processors there are.
        std::thread::sleep(Duration::from_micros(50));
    }
    Lane { folder, states }
}

impl History {
    fn sync(&mut self, fs: &Filesystem, clock: &Clock, recording: &Recording) {
        let begun = clock.now();
        fs.sync().unwrap();
        self.syncs.push(Sync { begun, position: recording.position() });
    }

    /// Takes a snapshot, and deletes one that was taken before.
    fn snapshot(&mut self, root: &Subvolume, clock: &Clock, recording: &Recording) {
        let name = format!("snapshot-{}", self.snapshots.len());
        let kinds = [SnapshotKind::ReadOnly, SnapshotKind::Writable];
        let begun = clock.now();
        root.snapshot(&name, kinds[self.snapshots.len() % 2]).unwrap();
        let (done, taken) = (clock.now(), recording.position());
        self.syncs.push(Sync { begun, position: taken });
        let (leaving, gone) = (None, None);
        self.snapshots.push(Snapshot { name, begun, done, taken, leaving, gone });
        if let Some(old) = self.snapshots.len().checked_sub(3) {
            let old = &mut self.snapshots[old];
            old.leaving = Some(recording.position());
            root.delete_subvolume(&old.name).unwrap();
            old.gone = Some(recording.position());
        }
    }
}

fn often() -> OpenOptions {
    OpenOptions::new().write(true).commit_interval(Some(Duration::from_millis(10)))
}

fn by_request() -> OpenOptions {
    OpenOptions::new().write(true).commit_interval(None)
}

#[test]
fn eight_threads() {
    let spec = ImageSpec::new("eight-threads").devices(&[512 << 20]);
    explore::<Players<8, 60>>(&spec, &by_request(), 1);
}

#[test]
fn eight_threads_and_commits_in_the_background() {
    let spec = ImageSpec::new("background").devices(&[512 << 20]).node_size(4096);
    explore::<Players<8, 60>>(&spec, &often(), 2);
}

#[test]
fn compressed_with_discards() {
    let spec = ImageSpec::new("compressed").devices(&[512 << 20]).without(Feature::NoHoles);
    let compression =
        WriteCompression { compression: CompressionAlgorithm::Zstd.into(), force: false };
    let options = by_request().compression(Some(compression)).discard(true);
    explore::<Players<3, 80>>(&spec, &options, 3);
}

#[test]
fn copies_on_two_devices() {
    let spec = ImageSpec::new("raid1").devices(&[512 << 20; 2]);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid1);
    explore::<Players<3, 80>>(&spec, &by_request(), 4);
}

#[test]
fn stripes_on_four_devices() {
    let spec = ImageSpec::new("raid10").devices(&[512 << 20; 4]);
    let spec = spec.profiles(Profile::Raid10, Profile::Raid1c4);
    explore::<Players<3, 80>>(&spec, &often(), 5);
}

#[test]
fn stripes_without_copies() {
    let spec = ImageSpec::new("raid0").devices(&[512 << 20; 3]).node_size(65536);
    let spec = spec.profiles(Profile::Raid0, Profile::Raid1c3);
    explore::<Players<3, 80>>(&spec, &by_request().discard(true), 6);
}

#[test]
fn mixed_groups() {
    let spec = ImageSpec::new("mixed").devices(&[512 << 20]).mixed().node_size(4096);
    explore::<Players<3, 80>>(&spec, &by_request(), 7);
}
