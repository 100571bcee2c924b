//! Power cuts while the data of a file changes, in steps with commits between them: the result is
//! sound, and each part of the file is in its old or its new state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larder::device::MemoryDevice;
use larder::{
    AllocateMode, CompressionAlgorithm, File, Filesystem, InodeFlags, SetAttributes, Subvolume,
    WriteCompression,
};
use larder_power_cuts::{assert_sound, load, survival};
use larder_test_devices::Recording;
use larder_testkit::{ImageSpec, KernelImage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::faults::open;

/// What a device writes whole or not at all.
const BLOCK: usize = 512;
const SECTOR: u64 = 4096;
/// More extents than go in one step.
const SECTORS: u64 = 400;
const LEN: usize = (SECTORS * SECTOR) as usize;
/// Power cuts during each kind of change.
const CUTS: usize = 16;

/// A change of a file whose sectors were written one by one, given another file.
struct Change {
    name: &'static str,
    is_in_place: bool,
    run: fn(&Filesystem, &File, &File),
    /// The content of the file after it.
    after: fn() -> Vec<u8>,
    /// It becomes shorter on the way.
    is_stepwise_shorter: bool,
}

/// The content of the file at an offset before it.
fn old(at: usize) -> u8 {
    (at / SECTOR as usize % 100) as u8 + 1
}

/// The content of the other file.
fn new(at: usize) -> u8 {
    (at / SECTOR as usize % 90) as u8 + 120
}

fn before() -> Vec<u8> {
    (0..LEN).map(old).collect()
}

fn others() -> Vec<u8> {
    (0..LEN).map(new).collect()
}

/// The content of the file before it, with a part of it as `part` says.
fn with(first: u64, sectors: u64, part: impl Fn(usize) -> u8) -> Vec<u8> {
    let mut data = before();
    let range = (first * SECTOR) as usize..((first + sectors) * SECTOR) as usize;
    for (at, byte) in data.iter_mut().enumerate().take(range.end).skip(range.start) {
        *byte = part(at);
    }
    data
}

const CHANGES: [Change; 8] = [
    Change {
        name: "truncate",
        is_in_place: false,
        run: |_, file, _| file.set_len(SECTOR + 100).unwrap(),
        after: || before()[..SECTOR as usize + 100].to_vec(),
        is_stepwise_shorter: true,
    },
    Change {
        name: "punch",
        is_in_place: false,
        run: |_, file, _| file.punch_hole(SECTOR, (SECTORS - 2) * SECTOR).unwrap(),
        after: || with(1, SECTORS - 2, |_| 0),
        is_stepwise_shorter: false,
    },
    Change {
        name: "zero",
        is_in_place: false,
        run: |_, file, _| {
            file.zero_range(SECTOR, 300 * SECTOR, AllocateMode::KeepSize).unwrap();
        },
        after: || with(1, 300, |_| 0),
        is_stepwise_shorter: false,
    },
    Change {
        name: "allocate",
        is_in_place: false,
        run: |_, file, _| file.allocate(0, 2 * LEN as u64, AllocateMode::KeepSize).unwrap(),
        after: before,
        is_stepwise_shorter: false,
    },
    Change {
        name: "clone",
        is_in_place: false,
        run: |_, file, other| {
            file.clone_range(other, 0, (SECTORS - 7) * SECTOR, 7 * SECTOR).unwrap();
        },
        after: || with(7, SECTORS - 7, |at| new(at - 7 * SECTOR as usize)),
        is_stepwise_shorter: false,
    },
    Change {
        name: "dedupe",
        is_in_place: false,
        run: |_, file, other| {
            other.write_at(&before(), 0).unwrap();
            other.sync().unwrap();
            assert!(file.dedupe_range(other, 0, LEN as u64, 0).unwrap().is_some());
        },
        after: before,
        is_stepwise_shorter: false,
    },
    Change {
        name: "in place",
        is_in_place: true,
        run: |_, file, _| {
            for first in (10..SECTORS - 10).step_by(20) {
                file.write_at(&others()[..10 * SECTOR as usize], first * SECTOR).unwrap();
                file.sync().unwrap();
            }
        },
        after: || {
            const PERIOD: usize = 20 * SECTOR as usize;
            with(10, SECTORS - 20, |at| {
                let within = (at - PERIOD / 2) % PERIOD;
                if within < PERIOD / 2 { new(within) } else { old(at) }
            })
        },
        is_stepwise_shorter: false,
    },
    Change {
        name: "compressed",
        is_in_place: false,
        run: |fs, file, _| {
            let compression = CompressionAlgorithm::Zstd.into();
            fs.set_compression(Some(WriteCompression { compression, force: true })).unwrap();
            for first in (0..SECTORS).step_by(100) {
                let range = (first * SECTOR) as usize..((first + 100) * SECTOR) as usize;
                file.write_at(&others()[range], first * SECTOR).unwrap();
                file.sync().unwrap();
            }
        },
        after: others,
        is_stepwise_shorter: false,
    },
];

fn create(root: &Subvolume, name: &str, data: &[u8], is_in_place: bool) -> File {
    let file = root.create(name, 0o644).unwrap();
    let flags = is_in_place.then_some(InodeFlags::NODATACOW);
    file.set_attributes(&SetAttributes { flags, ..Default::default() }).unwrap();
    // Backwards, so that each sector becomes an extent.
    for sector in (0..SECTORS as usize).rev() {
        let at = sector * SECTOR as usize;
        file.write_at(&data[at..at + SECTOR as usize], at as u64).unwrap();
        if sector % 60 == 0 {
            file.sync().unwrap();
        }
    }
    file
}

#[test]
fn power_cuts_while_data_changes() {
    let image = KernelImage::empty(&ImageSpec::new("data-cuts").node_size(4096));
    let base = load(&image.devices()[0]);
    for (number, change) in (0..).zip(&CHANGES) {
        let recording = Recording::new();
        let fs = open(recording.attach(&base)).unwrap();
        let root = fs.subvolume("/").unwrap();
        let file = create(&root, "file", &before(), change.is_in_place);
        let other = create(&root, "other", &others(), change.is_in_place);
        fs.sync().unwrap();
        let begun = recording.position();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs.sync().unwrap();
                }
            });
            (change.run)(&fs, &file, &other);
            is_done.store(true, Ordering::Relaxed);
        });
        file.sync().unwrap();
        cut(change, &recording, begun, recording.position(), number);
    }
}

/// Cuts the power at places between `begun` and the end, at `done` and after it.
fn cut(change: &Change, recording: &Recording, begun: usize, done: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(larder_testkit::seed(seed));
    let mut places: Vec<usize> = (1..CUTS).map(|_| random.random_range(begun..done)).collect();
    places.push(done);
    places.sort_unstable();
    let mut replay = recording.replay();
    for place in places {
        while replay.position() < place {
            replay.step().unwrap();
        }
        let device = replay.power_cut(survival(random.random()));
        judge(change, &device[0], place == done, &format!("{}, cut at {place}", change.name));
    }
}

fn judge(change: &Change, device: &MemoryDevice, is_done: bool, what: &str) {
    assert_sound([device], what);
    let fs = open(device.snapshot()).unwrap();
    let file = fs.subvolume("/").unwrap().open_file("file").unwrap();
    let mut seen = vec![0; 3 * LEN];
    let len = file.read_at(&mut seen, 0).unwrap();
    let (before, after) = (before(), (change.after)());
    if is_done {
        assert!(seen[..len] == after, "{what}: {len} bytes");
        return;
    }
    let shortest = if change.is_stepwise_shorter { after.len() } else { before.len() };
    assert!((shortest..=before.len()).contains(&len), "{what}: {len} bytes");
    for start in (0..len).step_by(BLOCK) {
        let range = start..len.min(start + BLOCK);
        let is_new = after.get(range.clone()) == Some(&seen[range.clone()]);
        assert!(is_new || seen[range.clone()] == before[range], "{what}: at {start}");
    }
}
