//! Power cuts and failing devices: synced changes stay, and the result is sound.

use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use larder::device::{Device, MemoryDevice, Operation};
use larder::{AllocateMode, File, Filesystem, OpenOptions};
use larder_power_cuts::{
    assert_sound, assert_sound_but_for_bad_copies, assert_sound_to_btrfs, load, survival,
};
use larder_test_devices::{Event, Fault, FaultDevice, Recording};
use larder_testkit::{Content, ImageSpec, KernelImage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::model::Player;
use super::view::{View, by_larder};

const FOLDER: &str = "played";

pub(crate) fn open(device: impl Device + 'static) -> larder::Result<Filesystem> {
    let options = OpenOptions::new().write(true).commit_interval(None);
    options.open_devices(vec![Arc::new(device)])
}

/// After a power cut at any point, the file system is in the state of one of the syncs, and not of
/// one before the last that had returned.
#[test]
fn power_cuts_leave_synced_changes() {
    let image = KernelImage::build(&ImageSpec::new("cuts").node_size(4096), &Content::new(31));
    let base = load(&image.devices()[0]);
    let recording = Recording::new();
    let fs = open(recording.attach(&base)).unwrap();
    let root = fs.subvolume("/").unwrap();
    let seed = larder_testkit::seed(31);
    let mut player = Player::new(FOLDER, seed);
    let mut states: Vec<(usize, Option<View>)> = vec![(0, None)];
    root.create_directory(FOLDER, 0o755).unwrap();
    for _ in 0..5 {
        player.play(&root, 60);
        fs.sync().unwrap();
        states.push((recording.position(), Some(player.model.view())));
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mut replay = recording.replay();
    let mut cuts = 0;
    while let Some(entry) = replay.step() {
        let samples = if entry.event == Event::Flush { 4 } else { 1 };
        for _ in 0..samples {
            let image = replay.power_cut(survival(random.random()));
            let image = image.into_iter().next().unwrap();
            judge(&image, &states, replay.position());
            cuts += 1;
        }
    }
    assert!(cuts > 50, "{cuts}");
}

fn judge(image: &MemoryDevice, states: &[(usize, Option<View>)], position: usize) {
    assert_sound([image], &format!("cut at {position}"));
    let fs = open(image.snapshot()).unwrap();
    let root = fs.subvolume("/").unwrap();
    let seen = by_larder(&root, FOLDER).ok();
    let promised = states.iter().rposition(|(synced, _)| *synced <= position).unwrap();
    let found = states[promised..].iter().any(|(_, state)| match (&seen, state) {
        (Some(seen), Some(state)) => is_same(seen, state),
        (seen, state) => seen.is_none() && state.is_none(),
    });
    assert!(found, "at {position} there is none of the states from {promised} on");
}

fn is_same(seen: &View, state: &View) -> bool {
    seen.len() == state.len()
        && seen.iter().zip(state).all(|((path, seen), (expected_path, expected))| {
            path == expected_path
                && (seen.permissions, seen.nlink, &seen.content, &seen.xattrs)
                    == (expected.permissions, expected.nlink, &expected.content, &expected.xattrs)
        })
}

/// Longer than anything takes, so that a hang fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whichever call of a device fails, each in turn: the caller gets an error, synced changes stay,
/// nothing hangs.
#[test]
fn failing_devices_leave_synced_changes() {
    let image = KernelImage::build(&ImageSpec::new("faults"), &Content::new(32));
    let base = load(&image.devices()[0]);
    for operation in [Operation::Write, Operation::Flush, Operation::Discard, Operation::Read] {
        let (mut struck, mut told) = (0, 0);
        while let Some(is_told) = fail_one(&base, operation, struck) {
            struck += 1;
            told += u64::from(is_told);
        }
        println!("{struck} calls of {operation:?}, of which {told} callers were told");
        // A failed discard does no harm.
        let is_told_of = operation != Operation::Discard;
        assert!(struck > 0 && (told > 0) == is_told_of, "{operation:?}: {told} of {struck}");
    }
}

/// Fails the call of an operation after so many others, once. Returns whether the caller got an
/// error; `None` if there are no more.
fn fail_one(base: &MemoryDevice, operation: Operation, passing: u64) -> Option<bool> {
    let (disk, what) = (base.snapshot(), format!("{operation:?} {passing}"));
    let (done, waiting) = mpsc::channel();
    let trial = std::thread::spawn(move || {
        let outcome = work_on_a_faulty_device(disk, Fault::fail(operation).after(passing).times(1));
        done.send(()).expect("it is waited for");
        outcome
    });
    let hangs = waiting.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!hangs, "{what}: it hangs");
    trial.join().unwrap_or_else(|_| panic!("{what}"))
}

/// Returns whether the caller got an error for the fault, if there was any.
fn work_on_a_faulty_device(disk: MemoryDevice, fault: Fault) -> Option<bool> {
    let disk = Arc::new(disk);
    let device = Arc::new(FaultDevice::new(disk.clone()));
    let options = OpenOptions::new().write(true).commit_interval(None).discard(true);
    let fs = options.open_devices(vec![device.clone()]).unwrap();
    device.inject(fault);
    let synced = work_until_failure(&fs);
    drop(fs);
    device.heal();
    let strikes = device.strikes();
    let fs = options.open_devices(vec![device]).unwrap();
    let root = fs.subvolume("/").unwrap();
    for number in 0..synced {
        let whole = read(&root.open_file(format!("synced-{number}")).unwrap());
        assert!(whole == vec![number as u8 | 1; FILE_BYTES], "synced-{number}");
        let cut = read(&root.open_file(format!("shared-{number}")).unwrap());
        let expected = |at: usize| if HOLE.contains(&at) { 0 } else { number as u8 | 1 };
        assert!(cut.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "shared-{number}");
        assert_eq!(cut.len(), CUT_BYTES, "shared-{number}");
    }
    fs.sync().unwrap();
    drop((root, fs));
    // One copy of a tree block that the device refused is bad, and the other one is enough.
    assert_sound_but_for_bad_copies([&*disk], "after the fault");
    assert_sound_to_btrfs([&*disk], "after the fault");
    (strikes > 0).then_some(synced < FILES)
}

/// Data that could not be written takes no space: once the device works again, it is written,
/// however often that failed.
#[test]
fn writes_that_fail_take_no_space() {
    let image = KernelImage::empty(&ImageSpec::new("no-space"));
    let disk = Arc::new(load(&image.devices()[0]));
    let device = Arc::new(FaultDevice::new(disk.clone()));
    let options = OpenOptions::new().write(true).commit_interval(None);
    let fs = options.open_devices(vec![device.clone()]).unwrap();
    let root = fs.subvolume("/").unwrap();
    root.create("first", 0o644).unwrap();
    fs.sync().unwrap();
    let data = vec![7; 8 << 20];
    let attempts = 2 * fs.capacity().unwrap().available_bytes / data.len() as u64;
    let file = root.create("file", 0o644).unwrap();
    file.write_at(&data, 0).unwrap();
    device.inject(Fault::fail(Operation::Write));
    for _ in 0..attempts {
        file.sync().unwrap_err();
    }
    device.heal();
    file.sync().unwrap();
    fs.sync().unwrap();
    assert_eq!(read(&file), data);
    drop((file, root, fs));
    assert_sound([&*disk], "after the faults");
}

const FILES: usize = 4;
const FILE_BYTES: usize = 30_000;
const HOLE: Range<usize> = 4096..12_288;
const CUT_BYTES: usize = 20_000;

fn read(file: &File) -> Vec<u8> {
    let mut data = vec![0; file.len_bytes() as usize];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    data
}

/// Returns how many files were synced.
fn work_until_failure(fs: &Filesystem) -> usize {
    let failed =
        |number: &usize| work(fs, *number).inspect_err(|error| println!("{error}")).is_err();
    (0..FILES).find(failed).unwrap_or(FILES)
}

/// Creates a file, and another by sharing, and syncs them, in turn by a commit and through the log.
fn work(fs: &Filesystem, number: usize) -> larder::Result<()> {
    let root = fs.subvolume("/")?;
    let file = root.create(format!("synced-{number}"), 0o644)?;
    file.write_at(&vec![number as u8 | 1; FILE_BYTES], 0)?;
    let shared = root.create(format!("shared-{number}"), 0o644)?;
    shared.clone_range(&file, 0, 0, 0)?;
    shared.punch_hole(HOLE.start as u64, HOLE.len() as u64)?;
    shared.allocate(40_000, 50_000, AllocateMode::Grow)?;
    shared.set_len(CUT_BYTES as u64)?;
    if number.is_multiple_of(2) {
        return fs.sync();
    }
    file.sync()?;
    shared.sync()
}
