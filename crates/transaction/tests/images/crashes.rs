//! Power cuts and failing devices: durable states stay, and the result is sound.

use std::sync::Arc;

use larder_device::{Device, MemoryDevice, Operation};
use larder_power_cuts::{
    assert_sound, assert_sound_but_for_bad_copies, assert_sound_to_btrfs, load, survival,
};
use larder_test_devices::{Event, Fault, FaultDevice, Recording, Survival};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};
use larder_transaction::space::Priority;
use larder_transaction::{Error, TransactionManager};

use crate::support::snapshot::{Snapshot, clear_orphan, take, unlink};
use crate::support::{Directory, Files, Random, names, open_devices, touch, write_data};

fn image(spec: &ImageSpec, seed: u64) -> Vec<MemoryDevice> {
    let image = KernelImage::build(spec, &Content::new(seed));
    image.devices().iter().map(|file| load(file)).collect()
}

fn reopen(devices: Vec<MemoryDevice>) -> TransactionManager {
    let devices = devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>);
    open_devices(devices.collect()).expect("what is left of the image opens")
}

/// A durable state: its generation, its files, and where in the recording the commit returned.
struct Durable {
    generation: u64,
    names: Vec<String>,
    position: usize,
}

/// The work before the commit with this number.
type Work = fn(&TransactionManager, &mut State, u64);

/// The memory of a workload.
struct State {
    files: Files,
    random: Random,
    snapshots: Vec<Snapshot>,
}

/// Small changes all over the tree.
fn small_changes(manager: &TransactionManager, state: &mut State, _: u64) {
    state.files.churn(manager, 40).unwrap();
    touch(manager, 5, 20, &mut state.random).unwrap();
}

/// Files that fill block groups, and are deleted again.
fn chunks_come_and_go(manager: &TransactionManager, state: &mut State, number: u64) {
    let directory = Directory::open(manager, 5);
    for index in 0..6 {
        let name = format!("larder-{index}");
        if number.is_multiple_of(3) {
            let handle = manager.start(16, Priority::Normal).unwrap();
            let inode = directory.create(&handle, &name).unwrap();
            write_data(manager, &handle, inode, 10 << 20).unwrap();
            handle.end().unwrap();
            state.files.names.push(name);
        } else if number % 3 == 1 {
            let handle = manager.start(16, Priority::Deleting).unwrap();
            directory.remove(&handle, &name).unwrap();
            handle.end().unwrap();
            state.files.names.retain(|other| *other != name);
        }
    }
    touch(manager, 5, 5, &mut state.random).unwrap();
}

/// Snapshots that change, and are deleted in steps.
fn snapshots_come_and_go(manager: &TransactionManager, state: &mut State, _: u64) {
    state.files.churn(manager, 10).unwrap();
    for snapshot in &state.snapshots {
        touch(manager, snapshot.id, 4, &mut state.random).unwrap();
    }
    touch(manager, 5, 10, &mut state.random).unwrap();
    if state.snapshots.len() > 1 {
        let dead = state.snapshots.remove(0);
        unlink(manager, &dead);
        while !manager.drop_tree(dead.id, 30).unwrap() {}
        clear_orphan(manager, &dead);
    }
    state.snapshots.push(take(manager, 5, &mut state.random));
}

/// A recorded workload of several commits.
fn record(base: &[MemoryDevice], recording: &Recording, seed: u64, work: Work) -> Vec<Durable> {
    let attach = |device: &MemoryDevice| Arc::new(recording.attach(device)) as Arc<dyn Device>;
    let manager = open_devices(base.iter().map(attach).collect()).unwrap();
    let files = Files::new("larder", seed);
    let mut state = State { files, random: Random(seed), snapshots: Vec::new() };
    let generation = manager.durable_generation();
    let mut states = vec![Durable { generation, names: Vec::new(), position: 0 }];
    for number in 0..5 {
        work(&manager, &mut state, number);
        let generation = manager.commit().unwrap();
        let position = recording.position();
        states.push(Durable { generation, names: state.files.sorted(), position });
    }
    states
}

/// The state after a power cut at `position` is a whole one, and not too old.
fn judge(devices: Vec<MemoryDevice>, states: &[Durable], position: usize) {
    let manager = reopen(devices);
    let generation = manager.durable_generation();
    let promised = states.iter().rfind(|state| state.position <= position).unwrap();
    assert!(generation >= promised.generation, "at {position}: {generation} is too old");
    let state = states.iter().find(|state| state.generation == generation).unwrap();
    assert_eq!(names(&manager, "larder").unwrap(), state.names, "at {position}");
    // All of it can be changed again.
    let mut files = Files::new("again", 1);
    files.churn(&manager, 5).unwrap();
    manager.commit().unwrap();
}

fn explore(spec: &ImageSpec, seed: u64, work: Work) {
    let seed = larder_testkit::seed(seed);
    let base = image(spec, seed);
    let recording = Recording::new();
    let states = record(&base, &recording, seed, work);
    let mut random = Random(seed);
    let mut replay = recording.replay();
    let (mut cuts, mut flushes) = (0, 0);
    while let Some(entry) = replay.step() {
        let is_flush = entry.event == Event::Flush;
        flushes += u64::from(is_flush);
        let samples = if is_flush { 4 } else { 8 };
        for sample in 0..samples {
            let devices = if is_flush && sample == 0 {
                replay.power_cut(|_, _| Survival::Lost)
            } else {
                replay.power_cut(survival(random.next()))
            };
            let what = format!("at {}", replay.position());
            assert_sound(&devices, &what);
            if cuts % 16 == 0 {
                assert_sound_to_btrfs(&devices, &what);
            }
            judge(devices, &states, replay.position());
            cuts += 1;
        }
    }
    println!("{}: {cuts} power cuts, {flushes} flushes", spec.name());
    // How many writes there are depends on how many neighbours one of them takes along.
    let commits = states.len() as u64 - 1;
    assert!(flushes >= 2 * commits, "{flushes} flushes: the trees', and the superblock's");
}

#[test]
fn power_cuts_leave_a_committed_state() {
    explore(&ImageSpec::new("default"), 21, small_changes);
}

#[test]
fn power_cuts_on_two_devices() {
    let spec =
        ImageSpec::new("raid1").devices(&[256 << 20; 2]).profiles(Profile::Raid1, Profile::Raid1);
    explore(&spec, 22, small_changes);
}

#[test]
fn power_cuts_while_chunks_come_and_go() {
    explore(&ImageSpec::new("chunks"), 26, chunks_come_and_go);
}

#[test]
fn power_cuts_while_snapshots_come_and_go() {
    explore(&ImageSpec::new("snapshots").node_size(4096), 27, snapshots_come_and_go);
}

/// Changes and commits until something fails. Returns the state that is certainly durable, the one
/// that may be, and the error.
fn work_until_error(manager: &TransactionManager) -> (Vec<String>, Vec<String>, Option<Error>) {
    let mut files = Files::new("larder", 5);
    let mut durable = Vec::new();
    for _ in 0..3 {
        let done = files.churn(manager, 15).and_then(|()| manager.commit());
        if let Err(error) = done {
            return (durable, files.sorted(), Some(error));
        }
        durable = files.sorted();
    }
    (durable.clone(), durable, None)
}

/// Fails every call of a kind in turn. Returns in how many runs a call failed. One copy of a tree block
/// that is not written is no error while there is another, and is bad.
fn fail_each(base: &MemoryDevice, operation: Operation) -> u64 {
    for call in 0.. {
        let memory = Arc::new(base.snapshot());
        let device = FaultDevice::new(memory.clone());
        // Opening reads; an error there is no matter of this test.
        let faulty = Arc::new(device);
        let manager = open_devices(vec![faulty.clone()]).unwrap();
        faulty.inject(Fault::fail(operation).after(call).times(1));
        let (durable, unsure, error) = work_until_error(&manager);
        if let Some(error) = &error {
            let is_aborted = manager.aborted().is_some();
            assert!(is_aborted || operation == Operation::Read, "{operation} {call}: {error}");
            if is_aborted {
                assert!(matches!(manager.commit(), Err(Error::Aborted(_))));
                let joined = manager.start(1, Priority::Normal);
                assert!(matches!(joined.map(drop), Err(Error::Aborted(_))));
            }
        }
        drop(manager);
        let manager = reopen(vec![memory.snapshot()]);
        let found = names(&manager, "larder").unwrap();
        assert!(found == durable || found == unsure, "{operation} {call}: a state in between");
        if call % 10 == 0 {
            let what = format!("{operation} {call}");
            assert_sound_but_for_bad_copies([&*memory], &what);
            assert_sound_to_btrfs([&*memory], &what);
        }
        if faulty.strikes() == 0 {
            return call;
        }
    }
    unreachable!("a run without errors ends the loop")
}

#[test]
fn a_write_that_fails_surfaces_and_the_last_commit_stays() {
    let base = image(&ImageSpec::new("default"), 23);
    let failures = fail_each(&base[0], Operation::Write);
    println!("{failures} writes");
    // One for each flush of a commit: what more there is depends on how writes are merged.
    assert!(failures >= 6);
}

#[test]
fn a_flush_that_fails_surfaces_and_the_last_commit_stays() {
    let base = image(&ImageSpec::new("default"), 24);
    let failures = fail_each(&base[0], Operation::Flush);
    println!("{failures} flushes");
    assert!(failures >= 6);
}

#[test]
fn a_read_that_fails_surfaces_and_the_last_commit_stays() {
    // With one copy of metadata a failed read is an error. Opening has read the roots already.
    let spec = ImageSpec::new("single").profiles(Profile::Single, Profile::Single).node_size(4096);
    let failures = [25, 28, 29].map(|seed| fail_each(&image(&spec, seed)[0], Operation::Read));
    println!("{failures:?} reads");
    assert!(failures.iter().sum::<u64>() > 9);
}
