//! A reader keeps a state: it stays as it is while everything changes, and gives way when its space
//! is needed.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder::check::{Options, check_kept};
use larder::device::{Device, KeptState, MemoryDevice};
use larder::{ErrorKind, Filesystem, OpenOptions, SnapshotKind, Subvolume};
use larder_format::Logical;
use larder_power_cuts::{assert_sound_to_larder, load};
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, Profile, assert_same};

use super::model::Player;
use super::{storm, support};

/// Freed space is discarded as soon as it is not kept, so that a reader would meet zeros there.
fn open(memory: &[Arc<MemoryDevice>]) -> Filesystem {
    let options = OpenOptions::new().write(true).commit_interval(None).discard(true);
    let devices = memory.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    options.open_devices(devices).unwrap()
}

fn read(state: &KeptState) -> larder::Result<Filesystem> {
    OpenOptions::new().open_devices(state.devices())
}

/// Both checkers of the library agree that a state is whole, and it has these files.
fn assert_whole(state: &KeptState, expected: Option<&Manifest>) {
    let kept = read(state).unwrap();
    assert!(!kept.needs_log_replay());
    let options = Options { check_data_csum: true, threads: 2, ..Options::default() };
    let report = check_kept(state, &options).unwrap();
    assert!(report.is_clean(), "{report}");
    let accounting =
        larder::accounting::Accounting::of(&kept, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((accounting.unreadable_blocks, &*accounting.problems), (0, &[][..]));
    if let Some(expected) = expected {
        assert_same(expected, &support::manifest(&kept));
    }
    assert_eq!(state.ended(), None);
}

/// Changes, deletes, syncs and takes snapshots until `is_over`.
fn change_all_the_time(
    fs: &Filesystem,
    root: &Subvolume,
    player: &mut Player,
    is_over: &AtomicBool,
) {
    for round in 0.. {
        player.play(root, 20);
        storm(root, round);
        let name = format!("snapshot-{}", round % 3);
        if root.lookup(&name).is_ok() {
            root.delete_subvolume(&name).unwrap();
        }
        root.snapshot(&name, SnapshotKind::ReadOnly).unwrap();
        // A log, which takes free space and changes a superblock.
        let file = root.create("logged", 0o644).unwrap();
        file.write_at(&vec![round as u8; 70_000], 0).unwrap();
        file.sync().unwrap();
        root.remove_file("logged").unwrap();
        fs.sync().unwrap();
        if is_over.load(Relaxed) {
            return;
        }
    }
}

/// Ends the changes, also when a check fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn keep_while_everything_changes(spec: &ImageSpec) {
    let image = KernelImage::build(spec, &Content::new(71));
    let memory: Vec<_> = image.devices().iter().map(|path| Arc::new(load(path))).collect();
    let fs = open(&memory);
    let root = fs.subvolume("/").unwrap();
    for folder in ["a", "a/b", "c", "busy"] {
        root.create_directory(folder, 0o755).unwrap();
    }
    let mut player = Player::new("busy", larder_testkit::seed(800));
    for _ in 0..2 * larder_testkit::effort() {
        fs.sync().unwrap();
        let expected = support::manifest(&fs);
        let first = fs.keep_state().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let change = || change_all_the_time(&fs, &root, &mut player, &is_over);
            let changing = scope.spawn(change);
            let over = Over(&is_over);
            for _ in 0..3 {
                // One more reader, whose state is a later one.
                assert_whole(&fs.keep_state().unwrap(), None);
                assert_whole(&first, Some(&expected));
            }
            drop(over);
            changing.join().unwrap();
        });
        assert_whole(&first, Some(&expected));
        drop(first);
        fs.sync().unwrap();
        assert_sound_to_larder(memory.iter().map(|device| &**device), spec.name());
    }
    drop((root, fs));
    drop(open(&memory));
    assert_sound_to_larder(memory.iter().map(|device| &**device), spec.name());
}

#[test]
fn a_kept_state_stays_as_it_is() {
    keep_while_everything_changes(&ImageSpec::new("kept").devices(&[1 << 30]));
}

#[test]
fn a_kept_state_of_several_devices() {
    let spec = ImageSpec::new("kept-raid1").devices(&[1 << 30, 1 << 30]);
    keep_while_everything_changes(&spec.profiles(Profile::Raid1, Profile::Raid1));
}

/// Space that only a kept state withholds goes to a writer who would have none otherwise, and the
/// reader learns that.
#[test]
fn a_kept_state_gives_way_to_writers() {
    const PIECE_BYTES: usize = 1 << 20;
    let image = KernelImage::empty(&ImageSpec::new("kept-full").devices(&[256 << 20]));
    let memory = [Arc::new(load(&image.devices()[0]))];
    let fs = open(&memory);
    let root = fs.subvolume("/").unwrap();
    let fill = |name: &str| {
        let file = root.create(name, 0o644).unwrap();
        let pieces = (0..10_000_usize).find(|piece| {
            let offset = (piece * PIECE_BYTES) as u64;
            let written = file.write_at(&vec![*piece as u8; PIECE_BYTES], offset);
            written.and_then(|()| file.sync()).is_err()
        });
        pieces.expect("the device ends")
    };
    let before = fill("first");
    fs.sync().unwrap();
    let kept = fs.keep_state().unwrap();
    root.remove_file("first").unwrap();
    fs.sync().unwrap();
    assert_whole(&kept, None);

    let after = fill("second");
    assert!(after + 2 >= before, "{after} of {before} MiB");
    assert_eq!(kept.ended(), None, "nobody has read");
    let refused = kept.devices()[0].read_at(&mut [0; 4096], 1 << 20).unwrap_err();
    assert!(refused.to_string().contains("given up"), "{refused}");
    assert!(kept.ended().unwrap().contains("given up"));
    assert!(read(&kept).is_err());
    let refused = check_kept(&kept, &Options::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stale);
    drop(kept);

    // A state that is kept from now on has nothing to do with that one.
    let next = fs.keep_state().unwrap();
    assert_whole(&next, Some(&support::manifest(&fs)));
    drop(next);
    drop((root, fs));
    assert_sound_to_larder([&*memory[0]], "full");
}

/// All space comes back with the end of the last reader.
#[test]
fn a_kept_state_that_ends_gives_its_space_back() {
    let image = KernelImage::empty(&ImageSpec::new("kept-end").devices(&[1 << 30]));
    let memory = [Arc::new(load(&image.devices()[0]))];
    let fs = open(&memory);
    let root = fs.subvolume("/").unwrap();
    root.create("large", 0o644).unwrap().write_at(&vec![7; 64 << 20], 0).unwrap();
    fs.sync().unwrap();
    let stored = || memory[0].allocated_bytes();
    let full = stored();
    let [first, second] = [(); 2].map(|()| fs.keep_state().unwrap());
    root.remove_file("large").unwrap();
    fs.sync().unwrap();
    fs.sync().unwrap();
    drop(first);
    assert!(stored() >= full, "a reader has it");
    assert_whole(&second, None);
    drop(second);
    assert!(stored() < full / 2, "{} of {full}", stored());
}

#[test]
fn a_file_system_that_is_open_for_reading_keeps_its_state() {
    let image = KernelImage::build(&ImageSpec::new("kept-read"), &Content::new(71));
    let fs = OpenOptions::new().open(image.devices()).unwrap();
    assert_whole(&fs.keep_state().unwrap(), Some(&support::manifest(&fs)));
}

#[test]
fn every_nth_commit_is_looked_at() {
    let image = KernelImage::build(&ImageSpec::new("inspected"), &Content::new(71));
    let fs = open(&[Arc::new(load(&image.devices()[0]))]);
    let root = fs.subvolume("/").unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    fs.inspect_commits(NonZeroU64::new(3).unwrap(), move |state| {
        assert_whole(state, None);
        count.fetch_add(1, Relaxed);
    });
    for number in 0..10 {
        root.create(format!("file-{number}"), 0o644).unwrap();
        fs.sync().unwrap();
    }
    assert_eq!(seen.load(Relaxed), 3);
}

/// The option of tests finds damage: here, of one copy of a block that commits leave alone.
#[test]
#[should_panic(expected = "a commit left damage")]
fn damage_is_found_at_the_next_commit() {
    let image = KernelImage::build(&ImageSpec::new("damaged"), &Content::new(71));
    let memory = Arc::new(load(&image.devices()[0]));
    let options = OpenOptions::new().write(true).commit_interval(None).check_every(1);
    let fs = options.open_devices(vec![memory.clone()]).unwrap();
    let root = fs.subvolume("/").unwrap();
    let chunk_root = Logical(fs.volume().superblock().chunk_root.get());
    let place = fs.volume().map(chunk_root, 1).unwrap()[0].mirrors[1];
    memory.write_at(&[0xAA; 64], place.physical.0 + 200).unwrap();
    root.create("new", 0o644).unwrap();
    fs.sync().unwrap();
}
