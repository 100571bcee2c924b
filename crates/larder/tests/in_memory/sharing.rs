//! Which extents of a file are shared. The cost of each answer does not grow with the number of
//! extents, nor with how often they are shared.

use std::sync::Arc;

use larder::device::MemoryDevice;
use larder::{File, Filesystem, OpenOptions, SnapshotKind, Subvolume, UsedExtent};
use larder_mkfs::MkfsOptions;

use super::{as_dyn, make, open, small_nodes};

const SECTOR: u64 = 4096;

/// A file with this many extents, each of one sector and with a hole after it.
fn fragmented(root: &Subvolume, name: &str, extents: u64) -> File {
    let file = root.create(name, 0o644).unwrap();
    for number in 0..extents {
        file.write_at(&[number as u8; SECTOR as usize], 2 * number * SECTOR).unwrap();
    }
    root.filesystem().sync().unwrap();
    file
}

/// Tree blocks that listing the extents of a file looks at, with whether they are shared, for each
/// extent; all of them are or are not.
fn looks_for_each(fs: &Filesystem, path: &str, is_shared: bool) -> u64 {
    let file = fs.subvolume("/").unwrap().open_file(path).unwrap();
    let looks = |fs: &Filesystem| fs.stats().trees.hits + fs.stats().trees.misses;
    let before = looks(fs);
    let mut extents = 0;
    for used in UsedExtent::all_from(&file, 0).unwrap() {
        let used = used.unwrap();
        assert_eq!(used.is_shared, is_shared, "{path} at {}", used.extent.offset);
        extents += 1;
    }
    (looks(fs) - before) / extents
}

fn read_only(devices: &[Arc<MemoryDevice>]) -> Filesystem {
    OpenOptions::new().open_devices(as_dyn(devices)).unwrap()
}

#[test]
fn each_answer_costs_as_much_in_a_file_of_many_extents() {
    let mut costs = Vec::new();
    for extents in [500, 8000] {
        let devices = make(1, &small_nodes());
        let fs = open(as_dyn(&devices), OpenOptions::new());
        let root = fs.subvolume("/").unwrap();
        let file = fragmented(&root, "file", extents);
        root.create("copy", 0o644).unwrap().clone_range(&file, 0, 0, 0).unwrap();
        let old = fragmented(&root, "old", extents);
        root.snapshot("snapshot", SnapshotKind::ReadOnly).unwrap();
        fragmented(&root, "alone", extents);
        drop((file, old, root, fs));
        let fs = read_only(&devices);
        let cost = |path, is_shared| looks_for_each(&fs, path, is_shared);
        costs.push([
            cost("file", true),
            cost("copy", true),
            cost("old", true),
            cost("alone", false),
        ]);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        // The trees are higher.
        assert!(*many <= 3 * few + 10, "{costs:?}");
    }
}

#[test]
fn each_answer_costs_as_much_for_an_extent_with_many_references() {
    let mut costs = Vec::new();
    for references in [200, 20_000] {
        let devices = make(1, &MkfsOptions::default());
        let fs = open(as_dyn(&devices), OpenOptions::new());
        let root = fs.subvolume("/").unwrap();
        let source = fragmented(&root, "source", 4);
        let many = root.create("many", 0o644).unwrap();
        for number in 0..references {
            let from = 2 * (number % 4) * SECTOR;
            many.clone_range(&source, from, SECTOR, (references - number) * 2 * SECTOR).unwrap();
        }
        fs.sync().unwrap();
        drop((source, many, root, fs));
        let fs = read_only(&devices);
        costs.push([looks_for_each(&fs, "source", true), looks_for_each(&fs, "many", true)]);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        assert!(*many <= 3 * few + 10, "{costs:?}");
    }
}

/// What another file, or another subvolume, has is shared; what only the file itself has is not.
#[test]
fn an_extent_is_shared_as_long_as_another_file_has_it() {
    let devices = make(1, &MkfsOptions::default());
    let fs = open(as_dyn(&devices), OpenOptions::new());
    let root = fs.subvolume("/").unwrap();
    let file = fragmented(&root, "file", 4);
    let is_shared = |path: &str| {
        fs.sync().unwrap();
        let file = root.open_file(path).unwrap();
        let used: Vec<bool> =
            UsedExtent::all_from(&file, 0).unwrap().map(|used| used.unwrap().is_shared).collect();
        assert!(used.iter().all(|is_shared| *is_shared == used[0]), "{path}: {used:?}");
        (used[0], file.is_shared(0).unwrap())
    };
    assert_eq!(is_shared("file"), (false, false));
    // With itself.
    file.clone_range(&file, 0, 7 * SECTOR, 100 * SECTOR).unwrap();
    assert_eq!(is_shared("file"), (false, true));
    file.punch_hole(100 * SECTOR, 7 * SECTOR).unwrap();
    assert_eq!(is_shared("file"), (false, false));
    // With another file.
    root.create("copy", 0o644).unwrap().clone_range(&file, 0, 0, 0).unwrap();
    assert_eq!(is_shared("file"), (true, true));
    root.remove_file("copy").unwrap();
    assert_eq!(is_shared("file"), (false, false));
    // With a snapshot, in which the leaf is the same; then in the source it is another.
    root.snapshot("snapshot", SnapshotKind::Writable).unwrap();
    assert_eq!(is_shared("file"), (true, true));
    root.create("later", 0o644).unwrap();
    fs.sync().unwrap();
    assert_eq!(is_shared("file"), (true, true));
    assert_eq!(is_shared("snapshot/file"), (true, true));
    // Only the snapshot has it, once the file is closed.
    drop(file);
    root.remove_file("file").unwrap();
    assert_eq!(is_shared("snapshot/file"), (false, false));
    // Only snapshots of the snapshot, of which the first owner of the leaves is gone.
    fs.subvolume("snapshot").unwrap().snapshot_to(&root, "second", SnapshotKind::ReadOnly).unwrap();
    root.delete_subvolume("snapshot").unwrap();
    assert_eq!(is_shared("second/file"), (false, false));
    fs.subvolume("second").unwrap().snapshot_to(&root, "third", SnapshotKind::ReadOnly).unwrap();
    assert_eq!(is_shared("second/file"), (true, true));
    assert_eq!(is_shared("third/file"), (true, true));
}

/// What was not committed yet is found, and asking commits nothing.
#[test]
fn places_of_data_are_found_without_a_commit() {
    let devices = make(1, &small_nodes());
    let fs = open(as_dyn(&devices), OpenOptions::new());
    let root = fs.subvolume("/").unwrap();
    let file = fragmented(&root, "file", 300);
    root.snapshot("snapshot", SnapshotKind::Writable).unwrap();
    fs.sync().unwrap();
    let address = |file: &File| {
        fs.write_back().unwrap();
        UsedExtent::all_from(file, 0).unwrap().next().unwrap().unwrap().extent.logical.unwrap()
    };
    let old = address(&file);
    let generation = fs.generation();
    // The leaf is copied, and what refers to the data changes; then other files refer to it.
    file.write_at(&[1; 10], 2 * SECTOR).unwrap();
    let snapshot = fs.subvolume("snapshot").unwrap();
    for number in 0..100 {
        let copy = snapshot.create(format!("copy{number}"), 0o644).unwrap();
        copy.clone_range(&file, 0, SECTOR, number * SECTOR).unwrap();
    }
    snapshot.remove_file("copy7").unwrap();
    let new = root.create("new", 0o644).unwrap();
    new.write_at(&[9; SECTOR as usize], 0).unwrap();
    let new = address(&new);
    let places = |logical| {
        let found = fs.places_of(logical, false).unwrap();
        let place = |it: &larder::FilePlace| (it.subvolume, it.inode, it.offset);
        found.iter().map(place).collect::<Vec<_>>()
    };
    let found = [old, new].map(places);
    assert_eq!((found[0].len(), found[1].len()), (2 + 99, 1));
    assert!(file.is_shared(0).unwrap());
    assert_eq!(fs.generation(), generation, "nothing was committed");
    fs.sync().unwrap();
    assert_eq!([old, new].map(places), found);
}
