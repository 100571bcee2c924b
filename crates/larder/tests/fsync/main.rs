//! Files that were fsynced survive a power cut, whoever replays the log: the kernel replays our
//! logs, and so do we.

#[path = "../support/played.rs"]
mod played;
mod random;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/synced.rs"]
mod synced;
mod workloads;

use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder::{Filesystem, OpenOptions};
use larder_power_cuts::{assert_sound, load, store};
use larder_test_devices::{Recording, Survival};
use larder_testkit::{ImageSpec, KernelImage, Manifest, oracle};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn open(device: Arc<dyn Device>) -> Filesystem {
    let options = OpenOptions::new().write(true).commit_interval(None);
    options.open_devices(vec![device]).unwrap_or_else(|error| panic!("{error}"))
}

fn has_log(device: &MemoryDevice) -> bool {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device.snapshot())];
    let volume = larder_volume::Volume::open(devices, &larder_volume::OpenOptions::default());
    volume.unwrap().superblock().log_root.get() != 0
}

/// Recovers a device with the kernel. Returns what it shows then.
#[track_caller]
fn recover_by_kernel(image: &KernelImage, device: &MemoryDevice, what: &str) -> Manifest {
    let copy = image.duplicate();
    store(device, &copy.devices()[0]);
    drop(copy.mount(""));
    oracle::check(copy.devices(), true).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_sound([&load(&copy.devices()[0])], what);
    let mount = copy.mount("ro,noatime,subvolid=5");
    Manifest::of_tree(mount.path())
}

/// Recovers a device with the library, and runs both checkers. Returns what it shows then.
#[track_caller]
fn recover_by_larder(image: &KernelImage, device: &MemoryDevice, what: &str) -> Manifest {
    let device = Arc::new(device.snapshot());
    let fs = open(device.clone());
    let manifest = support::manifest(&fs);
    fs.sync().unwrap();
    drop(fs);
    assert_sound([&*device], what);
    let copy = image.duplicate();
    store(&device, &copy.devices()[0]);
    oracle::check(copy.devices(), true).unwrap_or_else(|error| panic!("{what}: {error}"));
    manifest
}

/// Kernel and library agree about the content of a log, except for times, which the kernel changes
/// during replay.
#[track_caller]
fn recover(image: &KernelImage, device: &MemoryDevice, what: &str) -> Manifest {
    let mut by_kernel = recover_by_kernel(image, device, what);
    let by_larder = recover_by_larder(image, device, what);
    for (path, entry) in &mut by_kernel.entries {
        let Some(other) = by_larder.entries.get(path) else { continue };
        if entry.ctime != other.ctime {
            (entry.ctime, entry.mtime) = (other.ctime, other.mtime);
        }
    }
    larder_testkit::assert_same(&by_larder, &by_kernel);
    by_larder
}

/// The state of a recorded device after a power cut now: everything that was not flushed is lost.
fn cut(recording: &Recording) -> MemoryDevice {
    let mut replay = recording.replay();
    while replay.step().is_some() {}
    replay.power_cut(|_, _| Survival::Lost).remove(0)
}

/// A program that replaces a file: it writes another, syncs it, renames it over the first and syncs
/// the directory. Then a journal that is created, synced and removed around each write.
#[test]
fn patterns_of_programs_need_no_commit() {
    let image = KernelImage::empty(&ImageSpec::new("patterns"));
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&load(&image.devices()[0]))));
    let root = fs.subvolume("/").unwrap();
    let base = root.create("base", 0o644).unwrap();
    base.write_at(&vec![1; 100_000], 0).unwrap();
    root.create("target", 0o644).unwrap().write_at(b"old", 0).unwrap();
    root.create_directory("folder", 0o755).unwrap();
    fs.sync().unwrap();
    let committed = larder_generation(&cut(&recording));
    for number in 0..10_u8 {
        let new = root.create("folder/new", 0o644).unwrap();
        new.write_at(&[number; 5000], 0).unwrap();
        new.sync().unwrap();
        root.rename("folder/new", "folder/target").unwrap();
        root.root().unwrap().lookup("folder").unwrap().sync().unwrap();
        let journal = root.create("journal", 0o644).unwrap();
        journal.write_at(&[number; 9000], 0).unwrap();
        journal.sync().unwrap();
        base.write_at(&[number; 4096], u64::from(number) * 8192).unwrap();
        base.sync_data().unwrap();
        root.remove_file("journal").unwrap();
        let device = cut(&recording);
        assert_eq!(larder_generation(&device), committed, "round {number}");
        assert!(has_log(&device));
        if number % 3 == 0 {
            let manifest = recover(&image, &device, &format!("round {number}"));
            let names: Vec<_> =
                manifest.entries.keys().map(|name| name.escape_ascii().to_string()).collect();
            assert_eq!(names, ["", "base", "folder", "folder/target", "journal", "target"]);
        }
    }
}

/// As git and many others write: a file is synced under a temporary name and renamed, and then one
/// is synced that refers to it. The reference must not outlive the name, whatever commits in between.
#[test]
fn a_name_given_after_a_sync_is_durable_with_the_next_sync() {
    /// What makes the file durable, and how many commits come before it is renamed.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Sync {
        Log,
        Commit,
        /// A commit that came before the sync.
        CommitBefore,
    }
    let image = KernelImage::empty(&ImageSpec::new("names"));
    let cases = [
        (Sync::Log, 0),
        (Sync::Log, 1),
        (Sync::Log, 3),
        (Sync::Commit, 0),
        (Sync::Commit, 1),
        (Sync::CommitBefore, 0),
        (Sync::CommitBefore, 2),
    ];
    for (sync, commits) in cases {
        let what = format!("{sync:?}, then {commits} commits");
        let recording = Recording::new();
        let fs = open(Arc::new(recording.attach(&load(&image.devices()[0]))));
        let root = fs.subvolume("/").unwrap();
        root.create_directory("incoming", 0o755).unwrap();
        root.create_directory("objects", 0o755).unwrap();
        let first = match sync {
            Sync::Commit => "incoming/temporary",
            Sync::Log | Sync::CommitBefore => "objects/temporary",
        };
        let object = root.create(first, 0o644).unwrap();
        if sync == Sync::Commit {
            fs.sync().unwrap();
            root.rename(first, "objects/temporary").unwrap();
        }
        object.write_at(b"content", 0).unwrap();
        if sync == Sync::CommitBefore {
            fs.sync().unwrap();
        }
        let before = larder_generation(&cut(&recording));
        object.sync().unwrap();
        let is_commit = larder_generation(&cut(&recording)) != before;
        assert_eq!(is_commit, sync == Sync::Commit, "{what}");
        for number in 0..commits {
            root.create(format!("other-{number}"), 0o644).unwrap();
            fs.sync().unwrap();
        }
        root.rename("objects/temporary", "objects/final").unwrap();
        let reference = root.create("reference", 0o644).unwrap();
        reference.write_at(b"objects/final", 0).unwrap();
        reference.sync().unwrap();
        let manifest = recover(&image, &cut(&recording), &what);
        let names: Vec<_> =
            manifest.entries.keys().map(|name| name.escape_ascii().to_string()).collect();
        let objects: Vec<_> = names.iter().filter(|name| name.starts_with("objects/")).collect();
        assert_eq!(objects, ["objects/final"], "{what}");
        assert!(names.iter().any(|name| name == "reference"), "{what}");
    }
}

/// Small writes all over a file, holes, a new size: however many syncs there are, each logs its
/// changes, and unchanged parts are not written again.
#[test]
fn a_file_is_synced_again_and_again_without_a_commit() {
    const SECTOR: u64 = 4096;
    const SECTORS: u64 = 1024;
    let image = KernelImage::empty(&ImageSpec::new("again"));
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&load(&image.devices()[0]))));
    let root = fs.subvolume("/").unwrap();
    let file = root.create("file", 0o644).unwrap();
    let mut expected = vec![1; (SECTORS * SECTOR) as usize];
    file.write_at(&expected, 0).unwrap();
    fs.sync().unwrap();
    let position = recording.position();
    file.sync().unwrap();
    assert_eq!(recording.position(), position, "all of it is committed");
    let committed = larder_generation(&cut(&recording));
    let mut random = StdRng::seed_from_u64(larder_testkit::seed(7));
    for round in 0..280_u64 {
        let start = random.random_range(0..expected.len() as u64 - 3 * SECTOR);
        let len = random.random_range(1..3 * SECTOR);
        let range = start as usize..(start + len) as usize;
        match round % 28 {
            5 => {
                file.punch_hole(start, len).unwrap();
                expected[range].fill(0);
            }
            10 => file.allocate(start, len, larder::AllocateMode::KeepSize).unwrap(),
            15 => {
                expected.resize(expected.len() - SECTOR as usize - 100, 0);
                file.set_len(expected.len() as u64).unwrap();
            }
            20 => {
                let end = expected.len() as u64;
                file.allocate(end, 5 * SECTOR, larder::AllocateMode::KeepSize).unwrap();
            }
            _ => {
                file.write_at(&vec![round as u8; len as usize], start).unwrap();
                expected[range].fill(round as u8);
            }
        }
        file.sync().unwrap();
        let position = recording.position();
        file.sync_data().unwrap();
        assert_eq!(recording.position(), position, "nothing changed");
        if round % 140 == 139 {
            let device = cut(&recording);
            assert_eq!(larder_generation(&device), committed, "round {round}");
            recover(&image, &device, &format!("round {round}"));
            let fs = open(Arc::new(device));
            let file = fs.subvolume("/").unwrap().open_file("file").unwrap();
            let mut seen = vec![0; expected.len() + 1];
            assert_eq!(file.read_at(&mut seen, 0).unwrap(), expected.len());
            assert!(seen[..expected.len()] == expected, "round {round}");
        }
    }
}

/// The generation of the last commit.
fn larder_generation(device: &MemoryDevice) -> u64 {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device.snapshot())];
    let volume = larder_volume::Volume::open(devices, &larder_volume::OpenOptions::default());
    volume.unwrap().superblock().generation.get()
}

/// Threads that sync their own files at once share the writing; each gets what it was promised.
#[test]
fn threads_that_sync_at_once() {
    const THREADS: u8 = 4;
    const ROUNDS: u8 = 30;
    let image = KernelImage::empty(&ImageSpec::new("threads"));
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&load(&image.devices()[0]))));
    let root = fs.subvolume("/").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = &root;
            scope.spawn(move || {
                let file = root.create(format!("file-{thread}"), 0o644).unwrap();
                for round in 0..ROUNDS {
                    file.write_at(&[round; 4096], u64::from(round) * 4096).unwrap();
                    file.sync().unwrap();
                    let other = root.create(format!("other-{thread}-{round}"), 0o644).unwrap();
                    other.write_at(&[round; 10], 0).unwrap();
                }
            });
        }
    });
    let device = cut(&recording);
    recover(&image, &device, "threads");
    let fs = open(Arc::new(device));
    let root = fs.subvolume("/").unwrap();
    for thread in 0..THREADS {
        let file = root.open_file(format!("file-{thread}")).unwrap();
        let mut data = vec![0; usize::from(ROUNDS) * 4096];
        assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
        assert!(data.chunks(4096).zip(0..).all(|(part, round)| part == [round; 4096]));
    }
}

/// With mixed block groups a sync is a commit, and the kernel finds it after a cut.
#[test]
fn mixed_block_groups_get_no_log() {
    let spec = ImageSpec::new("mixed").devices(&[256 << 20]).mixed().node_size(4096);
    let image = KernelImage::empty(&spec);
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&load(&image.devices()[0]))));
    let root = fs.subvolume("/").unwrap();
    let folder = root.create_directory("folder", 0o755).unwrap();
    for number in 0..4_u8 {
        let file = root.create(format!("folder/{number}"), 0o644).unwrap();
        file.write_at(&vec![number; 50_000], 0).unwrap();
        if number % 2 == 0 { file.sync() } else { folder.sync() }.unwrap();
        file.write_at(&[number; 5000], 70_000).unwrap();
        file.sync_data().unwrap();
        let device = cut(&recording);
        assert!(!has_log(&device), "file {number}");
        let manifest = recover(&image, &device, &format!("file {number}"));
        let path = format!("folder/{number}").into_bytes();
        assert_eq!(manifest.entries[&path].size_bytes, 75_000);
    }
}
