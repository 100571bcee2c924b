//! The kernel finds what is written here: random operations against a model, checked by `btrfs
//! check`, `larder check`, the kernel's view of everything, and its scrub, round after round, with
//! the kernel making changes in between.

mod actors;
mod balanced;
mod capabilities;
mod compressed;
mod cuts;
#[path = "../support/data.rs"]
mod data;
mod data_cuts;
mod delayed;
mod deleted;
mod discard;
mod edges;
mod enospc;
mod extents;
mod faults;
mod filling;
mod full_of_references;
mod kept;
mod kernel_parity;
mod limits;
mod listed;
mod live;
mod mapping;
mod meanwhile;
#[path = "../support/model.rs"]
mod model;
mod namespace;
mod nested;
mod on_memory;
mod random_operations;
mod room;
mod sending;
mod sharing;
mod sizes;
mod stress;
#[path = "../support/mod.rs"]
mod support;
mod unnamed;
#[path = "../support/view.rs"]
mod view;

use std::sync::Arc;
use std::time::Duration;

use larder::device::{Device, FileDevice};
use larder::{
    CompressionAlgorithm, ErrorKind, Filesystem, OpenOptions, RenameMode, SnapshotKind, Subvolume,
    WriteCompression,
};
use larder_testkit::{
    Checkable, Content, Feature, ImageSpec, KernelImage, Profile, matrix, oracle,
};
use model::Player;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use view::{assert_same, by_kernel, by_larder};

fn open(image: &KernelImage) -> Filesystem {
    OpenOptions::new().write(true).open(image.devices()).unwrap_or_else(|error| panic!("{error}"))
}

/// Both checkers find nothing.
#[track_caller]
fn check(image: &KernelImage, what: &str) {
    oracle::check(image.devices(), true).unwrap_or_else(|error| panic!("after {what}: {error}"));
    let open = |path| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, larder::device::Access::ReadOnly).unwrap())
    };
    let devices = image.devices().iter().map(open).collect();
    let volume =
        larder_volume::Volume::open(devices, &larder_volume::OpenOptions::default()).unwrap();
    let report =
        larder_check::check(&volume, &larder_check::Options::default()).expect("nobody stops it");
    assert!(report.is_clean(), "after {what}: {report:#?}");
}

#[test]
fn a_first_file() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(1));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("made-here", 0o755).unwrap();
    let file = root.create("made-here/today.txt", 0o644).unwrap();
    file.write_at(b"bread, butter", 0).unwrap();
    let large = root.create("made-here/large", 0o644).unwrap();
    large.write_at(&vec![7; 1_000_000], 12_345).unwrap();
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((fs, root, file, large));
    check(&image, "the first file");
    let mount = image.mount("ro,noatime");
    larder_testkit::assert_same(&larder_testkit::Manifest::of_tree(mount.path()), &manifest);
}

/// Rounds of random operations in a folder and in its snapshot, with the kernel making changes in
/// between.
fn rounds(spec: &ImageSpec, seed: u64, rounds: usize) {
    let seed = larder_testkit::seed(seed);
    let image = KernelImage::build(spec, &Content::new(seed));
    let mut player = Player::new("played", seed);
    let mut snapshots = Vec::new();
    let fs = open(&image);
    fs.subvolume("/").unwrap().create_directory("played", 0o755).unwrap();
    fs.sync().unwrap();
    drop(fs);
    for round in 0..rounds {
        let fs = open(&image);
        let root = fs.subvolume("/").unwrap();
        for half in 0..2 {
            let compression = CompressionAlgorithm::ALL[(round + half) % 3].into();
            let compression = WriteCompression { compression, force: round % 3 == 1 };
            fs.set_compression((half == 1).then_some(compression)).unwrap();
            player.play(&root, 150);
            fs.sync().unwrap();
        }
        player.play(&root, 50);
        let name = format!("snapshot-{round}");
        let kind = if round % 2 == 0 { SnapshotKind::ReadOnly } else { SnapshotKind::Writable };
        let snapshot = root.snapshot(&name, kind).unwrap();
        snapshots.push((name, player.model.clone()));
        if kind == SnapshotKind::Writable {
            let mut copy = Player::new("played", seed + 1 + round as u64);
            copy.model = player.model.clone();
            copy.play(&snapshot, 60);
            snapshots.last_mut().unwrap().1 = copy.model;
        }
        player.play(&root, 50);
        if snapshots.len() > 2 {
            root.delete_subvolume(&snapshots.remove(0).0).unwrap();
        }
        fs.sync().unwrap();
        assert_same(&by_larder(&root, "played").unwrap(), &player.model.view(), "larder");
        let manifest = support::manifest(&fs);
        drop((fs, root, snapshot));
        check(&image, &format!("round {round}"));
        let mount = image.mount("ro,noatime");
        assert_same(&by_kernel(&mount.path().join("played")), &player.model.view(), "the kernel");
        for (name, model) in &snapshots {
            let folder = mount.path().join(name).join("played");
            assert_same(&by_kernel(&folder), &model.view(), name);
        }
        larder_testkit::assert_same(&larder_testkit::Manifest::of_tree(mount.path()), &manifest);
        drop(mount);
        kernel_changes(&image, round);
    }
    check(&image, "the kernel's changes");
}

/// The kernel's changes in between, outside of the models.
fn kernel_changes(image: &KernelImage, round: usize) {
    let mount = image.mount("");
    let folder = mount.path().join("by-the-kernel");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..30 {
        let path = folder.join(format!("file-{number}"));
        match (number + round) % 3 {
            0 => drop(std::fs::remove_file(path)),
            1 => std::fs::write(path, vec![number as u8; number * 2000]).unwrap(),
            _ => std::fs::write(path, vec![round as u8; 3_000_000]).unwrap(),
        }
    }
    oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_default_image() {
    rounds(&ImageSpec::new("default"), 1, 4);
}

#[test]
fn small_nodes_and_one_copy() {
    let spec = ImageSpec::new("nodes-4k").node_size(4096);
    rounds(&spec.profiles(Profile::Single, Profile::Single), 2, 4);
}

#[test]
fn items_for_holes() {
    rounds(&ImageSpec::new("holes").without(Feature::NoHoles), 3, 3);
}

#[test]
fn two_devices() {
    let spec = ImageSpec::new("raid1").devices(&[1 << 30, 1 << 30]);
    rounds(&spec.profiles(Profile::Raid1, Profile::Raid1), 4, 2);
}

#[test]
fn four_devices() {
    let spec = ImageSpec::new("raid10").devices(&[512 << 20; 4]);
    rounds(&spec.profiles(Profile::Raid10, Profile::Raid10), 5, 2);
}

/// All threads do everything in the same few folders while commits follow one another: nothing
/// hangs, and the result is sound.
#[test]
fn threads_in_the_same_folders() {
    let image = KernelImage::build(&ImageSpec::new("storm").node_size(4096), &Content::new(7));
    let options = OpenOptions::new().write(true).commit_interval(Some(Duration::from_millis(5)));
    let fs = options.open(image.devices()).unwrap();
    let root = fs.subvolume("/").unwrap();
    for folder in ["a", "a/b", "c"] {
        root.create_directory(folder, 0o755).unwrap();
    }
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let root = &root;
            scope.spawn(move || storm(root, larder_testkit::seed(number)));
        }
    });
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, "the storm");
    let mount = image.mount("ro,noatime");
    larder_testkit::assert_same(&larder_testkit::Manifest::of_tree(mount.path()), &manifest);
}

/// Does what is possible; an operation may be refused because another thread was faster.
fn storm(root: &Subvolume, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..500 {
        let mut path = || {
            let folder = ["", "a", "a/b", "c"][random.random_range(0..4_usize)];
            format!("{folder}/name-{}", random.random_range(0..6))
        };
        let (path, other) = (path(), path());
        let done = match random.random_range(0..10) {
            0..3 => root.create(&path, 0o644).and_then(|file| file.write_at(&[1; 5000], number)),
            3 => root.create_directory(&path, 0o755).map(drop),
            4 => root.hard_link(&path, &other),
            5 => root.remove_file(&path),
            6 => root.remove_directory(&path),
            7 => root.rename_with(&path, &other, RenameMode::Exchange),
            8 => root.rename(&path, &other),
            _ => root.open_file(&path).and_then(|file| file.set_len(number * 10)),
        };
        if let Err(error) = done {
            let is_refusal = !matches!(
                error.kind(),
                ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::ReadOnly | ErrorKind::NoSpace
            );
            assert!(is_refusal, "{path}, {other}: {error}");
        }
        if number % 100 == 0 {
            root.filesystem().sync().unwrap();
        }
    }
}

#[test]
fn threads_in_their_own_folders() {
    let image = KernelImage::build(&ImageSpec::new("threads"), &Content::new(6));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut players: Vec<Player> = (0..4)
        .map(|number| {
            let folder = format!("thread-{number}");
            root.create_directory(&folder, 0o755).unwrap();
            Player::new(&folder, 60 + number)
        })
        .collect();
    std::thread::scope(|scope| {
        for player in &mut players {
            scope.spawn(|| player.play(&root, 400));
        }
        for number in 0..6 {
            let name = format!("busy-{number}");
            root.snapshot(&name, SnapshotKind::ReadOnly).unwrap();
            if number % 2 == 0 {
                root.delete_subvolume(&name).unwrap();
            }
        }
    });
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, "threads");
    let mount = image.mount("ro,noatime");
    for (number, player) in players.iter().enumerate() {
        let folder = mount.path().join(format!("thread-{number}"));
        assert_same(&by_kernel(&folder), &player.model.view(), "the kernel");
    }
    larder_testkit::assert_same(&larder_testkit::Manifest::of_tree(mount.path()), &manifest);
}

/// Shapes that differ much from each other.
const SHAPES: [&str; 8] = [
    "nodes-64k-blake2",
    "raid0-3-devices",
    "mixed",
    "zstd-holes",
    "oldest",
    "v1-cache",
    "quota",
    "nodatacow",
];

#[test]
fn images_of_many_shapes() {
    for case in matrix::matrix().iter().filter(|case| SHAPES.contains(&case.spec.name())) {
        one_round(case);
    }
}

#[test]
#[ignore = "takes more than a minute: those that differ most are in another test"]
fn images_of_every_shape() {
    // Changes that a device missed stay missing until a scrub.
    let is_sound = |case: &&matrix::Case| {
        case.spec.checkable() == Checkable::All && case.spec.name() != "device-out-of-date"
    };
    for case in matrix::matrix().iter().filter(is_sound) {
        one_round(case);
    }
}

/// A few changes to an image, unless it can only be read.
fn one_round(case: &matrix::Case) {
    let image = KernelImage::build(&case.spec, &case.content);
    let name = case.spec.name();
    let fs = match OpenOptions::new().write(true).open(image.devices()) {
        Ok(fs) => fs,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{name}: {error}");
            let has_parity = ["raid5", "raid6", "converted"].iter().any(|part| name.contains(part));
            let is_expected = has_parity || case.spec.is_power_cut();
            assert!(is_expected, "{name}: {error}");
            return;
        }
    };
    let root = fs.subvolume("/").unwrap();
    let mut player = Player::new("played", 8);
    root.create_directory("played", 0o755).unwrap();
    player.play(&root, 150);
    root.snapshot("snapshot-of-all", SnapshotKind::ReadOnly).unwrap();
    player.play(&root, 100);
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, name);
    let mount = image.mount("ro,noatime,subvolid=5");
    assert_same(&by_kernel(&mount.path().join("played")), &player.model.view(), name);
    larder_testkit::assert_same(&larder_testkit::Manifest::of_tree(mount.path()), &manifest);
}
