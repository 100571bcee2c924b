//! Power cuts and failing devices: what was synced stays, and what is there is sound.

use std::sync::Arc;

use larder::device::{Device, MemoryDevice, Operation};
use larder::{Filesystem, OpenOptions};
use larder_device::{Entry, Event, Fault, FaultDevice, Recording, Survival};
use larder_testkit::{Content, ImageSpec, KernelImage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::memory::load;
use super::model::Player;
use super::view::{View, by_larder};

const FOLDER: &str = "played";
/// Where the copies of the superblock are that an image of this size has.
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];

pub(crate) fn open(device: impl Device + 'static) -> larder::Result<Filesystem> {
    let options = OpenOptions::new().write(true).commit_interval(None);
    options.open_devices(vec![Arc::new(device)])
}

/// Our own checker finds nothing but copies of the superblock that a cut came between.
pub(crate) fn check(device: MemoryDevice, what: &str) {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device)];
    let volume = larder_volume::Volume::open(devices, &larder_volume::OpenOptions::default());
    let report = larder_check::check(&volume.unwrap(), &larder_check::Options::default());
    let is_expected =
        |kind: &larder_check::KindFindings| kind.kind == larder_check::Kind::SuperblocksDisagree;
    assert!(report.kinds.iter().all(is_expected), "{what}: {report}");
}

pub(crate) fn is_superblock(entry: &Entry) -> bool {
    matches!(&entry.event, Event::Write { offset, .. } if SUPERBLOCKS.contains(offset))
}

/// After a power cut anywhere, the file system is as one of the syncs left it, and not as one before
/// the last that had returned.
#[test]
fn power_cuts_leave_what_was_synced() {
    let image = KernelImage::build(&ImageSpec::new("cuts").node_size(4096), &Content::new(31));
    let base = load(&image.devices()[0]);
    let recording = Recording::new();
    let fs = open(recording.attach(&base)).unwrap();
    let root = fs.subvolume("/").unwrap();
    let mut player = Player::new(FOLDER, 31);
    let mut states: Vec<(usize, Option<View>)> = vec![(0, None)];
    root.create_directory(FOLDER, 0o755).unwrap();
    for _ in 0..5 {
        player.play(&root, 60);
        fs.sync().unwrap();
        states.push((recording.position(), Some(player.model.view())));
    }
    let mut random = StdRng::seed_from_u64(31);
    let mut replay = recording.replay();
    let mut cuts = 0;
    while let Some(entry) = replay.step() {
        let samples = if entry.event == Event::Flush { 4 } else { 1 };
        for _ in 0..samples {
            let tear = random.random_range(0..9);
            let image = replay.power_cut(|_, entry| match random.random_range(0..4) {
                0 => Survival::Whole,
                1 if !is_superblock(entry) => Survival::Torn { sectors: tear },
                _ => Survival::Lost,
            });
            let image = image.into_iter().next().unwrap();
            judge(&image, &states, replay.position());
            cuts += 1;
        }
    }
    assert!(cuts > 50, "{cuts}");
}

fn judge(image: &MemoryDevice, states: &[(usize, Option<View>)], position: usize) {
    check(image.snapshot(), &format!("cut at {position}"));
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

/// Whichever write or flush fails: the caller is told, what was synced before stays, nothing hangs.
#[test]
fn failing_devices_leave_what_was_synced() {
    let image = KernelImage::build(&ImageSpec::new("faults"), &Content::new(32));
    let base = load(&image.devices()[0]);
    let mut failures = 0;
    for operation in [Operation::Write, Operation::Flush] {
        for passing in 0..25 {
            let disk = Arc::new(base.snapshot());
            let device = Arc::new(FaultDevice::new(disk.clone()));
            let options = OpenOptions::new().write(true).commit_interval(None);
            let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
            let fs = options.open_devices(devices).unwrap();
            device.inject(Fault::fail(operation).after(passing).times(1));
            let synced = write_until_failure(&fs);
            failures += u32::from(synced < FILES);
            drop(fs);
            let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
            let fs = options.open_devices(devices).unwrap();
            let root = fs.subvolume("/").unwrap();
            for number in 0..synced {
                let file = root.open_file(format!("synced-{number}")).unwrap();
                let mut data = vec![0; FILE_BYTES];
                assert_eq!(file.read_at(&mut data, 0).unwrap(), FILE_BYTES);
                assert!(data.iter().all(|byte| *byte == number as u8), "{number}");
            }
            fs.sync().unwrap();
            drop((root, fs));
            check(disk.snapshot(), &format!("{operation:?} {passing}"));
        }
    }
    assert!(failures > 10, "{failures}");
}

const FILES: usize = 4;
const FILE_BYTES: usize = 30_000;

/// Returns how many files were synced.
fn write_until_failure(fs: &Filesystem) -> usize {
    let root = fs.subvolume("/").unwrap();
    for number in 0..FILES {
        let file = root.create(format!("synced-{number}"), 0o644);
        let written = file.and_then(|file| file.write_at(&vec![number as u8; FILE_BYTES], 0));
        if written.and_then(|()| fs.sync()).is_err() {
            return number;
        }
    }
    FILES
}
