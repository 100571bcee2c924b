//! Delayed items: only the counters show that index items and inode items wait in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder::device::{Device, MemoryDevice, Operation};
use larder::{
    Directory, ErrorKind, Filesystem, OpenOptions, Queue, Reserve, SetAttributes, SnapshotKind,
    Subvolume, Timestamp, Tuning,
};
use larder_power_cuts::{assert_sound, load, survival};
use larder_test_devices::{Event, Fault, FaultDevice, Recording};
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, Profile};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::model::Player;
use super::view::{assert_same, by_kernel, by_larder};
use super::{check, faults, support};

/// Commits only on request, so that items stay queued.
fn open_with(image: &KernelImage, tuning: Tuning) -> Filesystem {
    let options = OpenOptions::new().write(true).commit_interval(None).tuning(tuning);
    options.open(image.devices()).unwrap_or_else(|error| panic!("{error}"))
}

fn open(image: &KernelImage) -> Filesystem {
    open_with(image, Tuning::default())
}

fn directory(root: &Subvolume, path: &str) -> Directory {
    root.lookup(path).unwrap().into_directory().unwrap()
}

/// Names with their indexes, in the order in which they are listed.
fn listed(directory: &Directory, from: u64) -> Vec<(u64, String)> {
    let name = |entry: larder::Entry| (entry.index(), entry.name().to_str().unwrap().to_owned());
    directory.entries_from(from).unwrap().map(|entry| name(entry.unwrap())).collect()
}

fn names(directory: &Directory) -> BTreeSet<String> {
    let listed = listed(directory, 0);
    assert!(listed.is_sorted_by(|a, b| a.0 < b.0), "indexes ascend");
    let count = listed.len();
    let names: BTreeSet<String> = listed.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names.len(), count, "a name is listed twice");
    names
}

#[test]
fn delayed_items_are_listed_and_counted() {
    let image = KernelImage::build(&ImageSpec::new("queued").node_size(4096), &Content::new(41));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("d", 0o755).unwrap();
    let directory = directory(&root, "d");
    let mut expected = BTreeSet::new();
    for number in 0..300 {
        root.create(format!("d/{number}"), 0o644).unwrap();
        expected.insert(number.to_string());
        if number == 100 {
            fs.sync().unwrap();
            assert_eq!(fs.stats().delayed.queued_items, 0);
        }
        if number % 3 == 0 {
            let gone = (number / 2).to_string();
            assert_eq!(root.remove_file(format!("d/{gone}")).is_ok(), expected.remove(&gone));
        }
    }
    let delayed = fs.stats().delayed;
    assert!(delayed.queued_items > 100, "{delayed:?}");
    assert!(delayed.reserved_bytes > 0, "{delayed:?}");
    assert_eq!(names(&directory), expected);
    // A listing goes on where it stopped, whether or not its entries are still queued.
    let all = listed(&directory, 0);
    for (rank, (index, _)) in all.iter().enumerate().step_by(7) {
        assert_eq!(listed(&directory, index + 1), all[rank + 1..]);
    }
    let mut entries = directory.entries().unwrap();
    let first: Vec<u64> = entries.by_ref().take(50).map(|entry| entry.unwrap().index()).collect();
    fs.sync().unwrap();
    let rest = entries.map(|entry| entry.unwrap().index());
    let seen: Vec<u64> = first.into_iter().chain(rest).collect();
    assert_eq!(seen, all.iter().map(|(index, _)| *index).collect::<Vec<_>>());
    let delayed = fs.stats().delayed;
    assert_eq!((delayed.queued_items, delayed.reserved_bytes), (0, 0));
    assert!(delayed.peak_reserved_bytes > 0 && delayed.flushed_items > 200, "{delayed:?}");
    assert_eq!(listed(&directory, 0), all);
    drop((root, directory, fs));
    check(&image, "all");
}

/// Names that stay are listed once each, whatever happens to others and to the queue meanwhile.
#[test]
fn listings_are_whole_while_others_come_and_go() {
    const STAYING: usize = 500;
    let image = KernelImage::build(&ImageSpec::new("listing").node_size(4096), &Content::new(42));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("d", 0o755).unwrap();
    for number in 0..STAYING {
        root.create(format!("d/stays-{number:04}"), 0o644).unwrap();
        root.create(format!("d/goes-{number:04}"), 0o644).unwrap();
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (root, is_done) = (&root, &is_done);
            scope.spawn(move || {
                for number in (thread..STAYING).step_by(2) {
                    root.remove_file(format!("d/goes-{number:04}")).unwrap();
                    root.create(format!("d/comes-{number:04}"), 0o644).unwrap();
                    let (from, to) =
                        (format!("d/comes-{number:04}"), format!("d/moves-{number:04}"));
                    root.rename(from, to).unwrap();
                }
                is_done.store(true, Relaxed);
            });
        }
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                fs.sync().unwrap();
            }
        });
        let directory = directory(&root, "d");
        while !is_done.load(Relaxed) {
            let listed = listed(&directory, 0);
            assert!(listed.is_sorted_by(|a, b| a.0 < b.0), "indexes ascend");
            let staying = listed.iter().filter(|(_, name)| name.starts_with("stays-")).count();
            assert_eq!(staying, STAYING);
        }
    });
    let seen = names(&directory(&root, "d"));
    let there = |kind| (0..STAYING).map(move |number| format!("{kind}-{number:04}"));
    assert_eq!(seen, there("moves").chain(there("stays")).collect());
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, "all");
    let mount = image.mount("ro,noatime");
    larder_testkit::assert_same(&Manifest::of_tree(mount.path()), &manifest);
}

/// A snapshot has all changes from before it, and none from after it.
#[test]
fn snapshots_have_delayed_items() {
    let image = KernelImage::build(&ImageSpec::new("snapshots"), &Content::new(43));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("d", 0o755).unwrap();
    let mtime = Timestamp { seconds: 12_345, nanoseconds: 6 };
    for round in 0..6 {
        for number in 0..50 {
            root.create(format!("d/{round}-{number}"), 0o644).unwrap();
        }
        if round > 0 {
            (0..25).for_each(|n| root.remove_file(format!("d/{}-{n}", round - 1)).unwrap());
        }
        let expected = names(&directory(&root, "d"));
        let attributes = SetAttributes { mtime: Some(mtime), ..SetAttributes::default() };
        root.lookup("d").unwrap().set_attributes(&attributes).unwrap();
        let snapshot = root.snapshot(format!("s{round}"), SnapshotKind::Writable).unwrap();
        assert_eq!(names(&directory(&snapshot, "d")), expected);
        assert_eq!(snapshot.lookup("d").unwrap().metadata().mtime, mtime);
        snapshot.create("d/only-here", 0o644).unwrap();
        root.create(format!("d/after-{round}"), 0o644).unwrap();
        assert_eq!(names(&directory(&snapshot, "d")).len(), expected.len() + 1);
    }
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, "all");
    let mount = image.mount("ro,noatime");
    larder_testkit::assert_same(&Manifest::of_tree(mount.path()), &manifest);
}

/// Delayed or not, and whatever is reserved: the same operations have the same results.
#[test]
fn it_makes_no_difference() {
    let direct = Tuning { queue: Queue::Direct, ..Tuning::default() };
    let per_item = Tuning { reserve: Reserve::PerItem, ..Tuning::default() };
    for tuning in [Tuning::default(), per_item, direct] {
        let spec = ImageSpec::new("same").node_size(4096);
        let image = KernelImage::build(&spec, &Content::new(44));
        let fs = open_with(&image, tuning);
        let root = fs.subvolume("/").unwrap();
        let mut player = Player::new("played", 44);
        root.create_directory("played", 0o755).unwrap();
        for _ in 0..3 {
            player.play(&root, 300);
            assert_same(&by_larder(&root, "played").unwrap(), &player.model.view(), "larder");
            let waits = fs.stats().delayed.queued_items > 0;
            assert_eq!(waits, tuning.queue == Queue::Delayed);
            fs.sync().unwrap();
            assert_eq!(fs.stats().delayed.reserved_bytes, 0);
        }
        drop((root, fs));
        check(&image, &format!("{tuning:?}"));
        let mount = image.mount("ro,noatime");
        let seen = by_kernel(&mount.path().join("played"));
        assert_same(&seen, &player.model.view(), "the kernel");
    }
}

/// A scan reads the tree past the inodes, and sees delayed items all the same.
#[test]
fn a_scan_sees_delayed_items() {
    let image = KernelImage::build(&ImageSpec::new("scanned"), &Content::new(45));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("d", 0o755).unwrap();
    (0..10).for_each(|n| drop(root.create(format!("d/{n}"), 0o644).unwrap()));
    let metadata = root.lookup("d").unwrap().metadata();
    let seen = root.scan().map(Result::unwrap).find(|inode| inode.metadata.inode == metadata.inode);
    assert_eq!(seen.unwrap().metadata, metadata);
}

/// However many directories and files wait for a commit, the delayed items are bounded.
#[test]
fn delayed_items_are_bounded() {
    const FOLDERS: usize = 40;
    // There is room for all of it.
    let spec = ImageSpec::new("bounded").node_size(4096).devices(&[8 << 30]);
    let image = KernelImage::build(&spec, &Content::new(49));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for folder in 0..FOLDERS {
        root.create_directory(format!("{folder}"), 0o755).unwrap();
    }
    let mut most_items = 0;
    for number in 0..20_000 {
        let file = root.create(format!("{}/{number}", number % FOLDERS), 0o644).unwrap();
        file.write_at(b"short", 0).unwrap();
        let attributes = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
        file.set_attributes(&attributes).unwrap();
        most_items = most_items.max(fs.stats().delayed.queued_items);
    }
    let delayed = fs.stats().delayed;
    assert!((30_000..33_000).contains(&most_items), "{most_items}");
    assert!(delayed.flushed_items > 0, "{delayed:?}");
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "all");
}

/// Threads fill a small file system with empty files in many directories. There is space for
/// delayed items, or they are not delayed; deleting always works, and in the end nothing is
/// reserved.
#[test]
fn directories_fill_a_file_system_and_are_emptied() {
    for reserve in [Reserve::PerLeaf, Reserve::PerItem] {
        let spec = ImageSpec::new("narrow").devices(&[128 << 20]);
        let spec = spec.profiles(Profile::Single, Profile::Single);
        let image = KernelImage::build(&spec, &Content::new(46));
        let device = Arc::new(load(&image.devices()[0]));
        let tuning = Tuning { reserve, ..Tuning::default() };
        let options = OpenOptions::new().write(true).commit_interval(None).tuning(tuning);
        let fs = options.open_devices(vec![device.clone()]).unwrap();
        let root = fs.subvolume("/").unwrap();
        let made: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    scope.spawn({
                        let root = &root;
                        move || fill(root, thread)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().sum::<usize>() > 5_000, "{made:?}");
        for (thread, count) in made.into_iter().enumerate() {
            (0..count).for_each(|number| root.remove_file(path(thread, number)).unwrap());
            (0..FOLDERS).for_each(|folder| {
                let _ = root.remove_directory(format!("{thread}-{folder}"));
            });
        }
        fs.sync().unwrap();
        let delayed = fs.stats().delayed;
        assert_eq!((delayed.queued_items, delayed.reserved_bytes), (0, 0), "{delayed:?}");
        drop((root, fs));
        assert_sound([&*device], "emptying");
    }
}

const FOLDERS: usize = 20;

fn path(thread: usize, number: usize) -> String {
    format!("{thread}-{}/{number:0230}", number % FOLDERS)
}

/// Returns how many were created before the space ran out.
fn fill(root: &Subvolume, thread: usize) -> usize {
    let is_full = |result: larder::Result<()>| match result {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            true
        }
    };
    for folder in 0..FOLDERS {
        let made = root.create_directory(format!("{thread}-{folder}"), 0o755);
        if is_full(made.map(drop)) {
            return 0;
        }
    }
    for number in 0..1_000_000 {
        if is_full(root.create(path(thread, number), 0o644).map(drop)) {
            return number;
        }
    }
    panic!("it holds more than its devices");
}

/// After a power cut at any point each directory has the names of one of the syncs, the same one,
/// and not one before the last that had returned.
#[test]
fn power_cuts_leave_whole_directories() {
    let image = KernelImage::build(&ImageSpec::new("cuts").node_size(4096), &Content::new(47));
    let base = load(&image.devices()[0]);
    let recording = Recording::new();
    let fs = faults::open(recording.attach(&base)).unwrap();
    let root = fs.subvolume("/").unwrap();
    let mut states = Vec::new();
    let mut sync = |root: &Subvolume| {
        fs.sync().unwrap();
        states.push((recording.position(), folders(root)));
    };
    for folder in ["a", "b"] {
        root.create_directory(folder, 0o755).unwrap();
    }
    sync(&root);
    let mut kept = Vec::new();
    for round in 0..4 {
        let mut random = StdRng::seed_from_u64(larder_testkit::seed(round));
        let passing = format!("a/passing-{round}");
        kept.push(root.create_directory(&passing, 0o755).unwrap());
        for number in 0..700 {
            root.create(format!("a/{round}-{number}"), 0o644).unwrap();
            root.create(format!("{passing}/{number}"), 0o644).unwrap();
            let other =
                format!("{}-{}", random.random_range(0..=round), random.random_range(0..700));
            let _ = match random.random_range(0..3) {
                0 => root.rename(format!("a/{other}"), format!("b/{other}")),
                1 => root.remove_file(format!("a/{other}")),
                _ => root.rename(format!("b/{other}"), format!("a/{other}-back")),
            };
        }
        if round % 2 == 0 {
            sync(&root);
        }
        (0..700).for_each(|number| root.remove_file(format!("{passing}/{number}")).unwrap());
        // It stays open: the commit has it as an orphan.
        root.remove_directory(&passing).unwrap();
        sync(&root);
    }
    let mut random = StdRng::seed_from_u64(larder_testkit::seed(47));
    let mut replay = recording.replay();
    let mut cuts = 0;
    while let Some(entry) = replay.step() {
        if entry.event != Event::Flush && random.random_range(0..4) > 0 {
            continue;
        }
        let image = replay.power_cut(survival(random.random()));
        judge(&image[0], &states, replay.position());
        cuts += 1;
    }
    assert!(cuts > 20, "{cuts}");
}

/// The names in both folders; none before the folders exist.
fn folders(root: &Subvolume) -> Vec<BTreeSet<String>> {
    let folders = ["a", "b"].map(|folder| root.lookup(folder).ok());
    let folders = folders.into_iter().flatten();
    folders.map(|folder| names(&folder.into_directory().unwrap())).collect()
}

fn judge(image: &MemoryDevice, states: &[(usize, Vec<BTreeSet<String>>)], position: usize) {
    assert_sound([image], &format!("cut at {position}"));
    let fs = faults::open(image.snapshot()).unwrap();
    let seen = folders(&fs.subvolume("/").unwrap());
    let promised = states.iter().rposition(|(synced, _)| *synced <= position);
    let is_state = states[promised.unwrap_or(0)..].iter().any(|(_, state)| *state == seen);
    assert!(is_state || promised.is_none() && seen.is_empty(), "cut at {position}");
}

/// If the tree cannot be read when delayed items are inserted into it, the caller of the sync gets
/// an error, and the last commit counts.
#[test]
fn a_flush_that_fails_leaves_the_last_commit() {
    let spec = ImageSpec::new("flush-fails").node_size(4096);
    let image = KernelImage::build(&spec, &Content::new(48));
    let base = Arc::new(load(&image.devices()[0]));
    let device = Arc::new(FaultDevice::new(base.clone()));
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    let options = OpenOptions::new().write(true).commit_interval(None).cache_bytes(0);
    let fs = options.open_devices(devices.clone()).unwrap();
    let root = fs.subvolume("/").unwrap();
    for folder in 0..40 {
        root.create_directory(folder.to_string(), 0o755).unwrap();
        (0..40).for_each(|n| drop(root.create(format!("{folder}/{n}"), 0o644).unwrap()));
    }
    fs.sync().unwrap();
    let folders: Vec<Directory> = (0..40).map(|f| directory(&root, &f.to_string())).collect();
    let before: Vec<BTreeSet<String>> = folders.iter().map(names).collect();
    for folder in 0..40 {
        let attributes = SetAttributes { permissions: Some(0o700), ..SetAttributes::default() };
        for number in 0..40 {
            let file = root.lookup(format!("{folder}/{number}")).unwrap();
            file.set_attributes(&attributes).unwrap();
        }
    }
    assert!(fs.stats().delayed.queued_items >= 1600);
    device.inject(Fault::fail(Operation::Read));
    fs.sync().unwrap_err();
    assert_eq!(root.create("late", 0o644).unwrap_err().kind(), ErrorKind::ReadOnly);
    device.heal();
    drop((folders, root, fs));
    let fs = options.open_devices(devices).unwrap();
    let root = fs.subvolume("/").unwrap();
    let after: Vec<BTreeSet<String>> =
        (0..40).map(|folder| names(&directory(&root, &folder.to_string()))).collect();
    assert_eq!(after, before);
    assert_eq!(root.lookup("39/39").unwrap().metadata().mode & 0o7777, 0o644);
    drop((root, fs));
    assert_sound([&*base], "a flush that failed");
}
