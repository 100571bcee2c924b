//! Full file systems with snapshots. What changes or deletes files in a snapshot copies blocks that
//! others share, and so takes space that no later commit gives back. Such callers get ENOSPC in
//! time: commits always succeed, and what shares nothing can always be deleted, whole subvolumes
//! too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder::{ErrorKind, OpenOptions, SnapshotKind, Subvolume, XattrMode};
use larder_mkfs::MkfsOptions;
use larder_power_cuts::assert_sound_to_larder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{as_dyn, make_of, open};

const FILES: u64 = 4000;
const SNAPSHOTS: u64 = 8;
/// Threads that change and delete files in snapshots.
const THREADS: u64 = 4;

/// Does something that may lack space, and nothing else. Returns whether there was enough.
#[track_caller]
fn has_space(what: &str, done: larder::Result<()>) -> bool {
    match done {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NoSpace => false,
        // A name may have gone before.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
            true
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// A change of one file, as they come.
fn change(root: &Subvolume, path: &str, random: &mut StdRng) -> larder::Result<()> {
    match random.random_range(0..10) {
        0..4 => {
            let len = random.random_range(1..900);
            root.lookup(path)?.set_xattr("user.a", &vec![1; len], XattrMode::Any)
        }
        4..6 => root.rename(path, format!("{path}-with-a-longer-name")),
        6..8 => root.hard_link(path, format!("{path}-linked")),
        8 => {
            let file = root.open_file(path)?;
            file.write_at(&[2; 4096], 0)?;
            file.sync()
        }
        _ => root.remove_file(path),
    }
}

/// The snapshots of a thread, each with one in so many files.
fn all_of(thread: u64, first: u64, one_in: usize) -> impl Iterator<Item = (u64, u64)> {
    let snapshots = (thread..SNAPSHOTS).step_by(THREADS as usize);
    snapshots.flat_map(move |snapshot| {
        (first..FILES).step_by(one_in).map(move |number| (snapshot, number))
    })
}

fn fill_with_snapshots(name: &str, device_bytes: u64, options: &MkfsOptions) {
    let devices = make_of(device_bytes, 1, options);
    let fs = open(as_dyn(&devices), OpenOptions::new());
    let root = fs.subvolume("/").unwrap();
    let seed = larder_testkit::seed(5);
    let mut random = StdRng::seed_from_u64(seed);
    let shared = root.create_subvolume("shared").unwrap();
    for number in 0..FILES {
        let file = shared.create(number.to_string(), 0o644).unwrap();
        let len = [100, 1500, 5000][random.random_range(0..3)];
        file.write_at(&vec![number as u8; len], 0).unwrap();
    }
    for number in 0..SNAPSHOTS {
        let snapshot = format!("snapshot-{number}");
        shared.snapshot_to(&root, snapshot, SnapshotKind::Writable).unwrap();
    }
    let big = root.create("big", 0o644).unwrap();
    let data = vec![3; 1 << 20];
    while has_space(name, big.write_at(&data, big.len_bytes())) {}
    let refused = AtomicU64::new(0);
    let note = |done| refused.fetch_add(u64::from(!has_space(name, done)), Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (root, fs, note) = (&root, &fs, &note);
            let mut random = StdRng::seed_from_u64(seed + thread);
            scope.spawn(move || {
                for round in 0..3 {
                    for (snapshot, number) in all_of(thread, round, 5) {
                        let path = format!("snapshot-{snapshot}/{number}");
                        note(change(root, &path, &mut random));
                    }
                    note(fs.sync());
                }
                // As a program that wants to make room in the wrong place.
                for (snapshot, number) in all_of(thread, 0, 3) {
                    note(root.remove_file(format!("snapshot-{snapshot}/{number}")));
                }
            });
        }
    });
    println!("{name}: {refused:?} refusals");
    assert!(refused.into_inner() > 100, "{name}: it was not full");
    fs.sync().unwrap_or_else(|error| panic!("{name}: {error}"));
    drop(big);
    root.remove_file("big").unwrap_or_else(|error| panic!("{name}: {error}"));
    for snapshot in 0..SNAPSHOTS {
        root.delete_subvolume(format!("snapshot-{snapshot}"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    fs.sync().unwrap_or_else(|error| panic!("{name}: {error}"));
    root.write("new", vec![4; 10 << 20]).unwrap_or_else(|error| panic!("{name}: {error}"));
    drop((root, shared));
    fs.close().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_sound_to_larder(devices.iter().map(|device| &**device), name);
}

#[test]
fn with_usual_nodes() {
    fill_with_snapshots("default", 300 << 20, &MkfsOptions::default());
}

#[test]
fn with_small_nodes() {
    let small = MkfsOptions { node_size_bytes: Some(4096), ..MkfsOptions::default() };
    fill_with_snapshots("small nodes", 400 << 20, &small);
}

#[test]
fn with_large_nodes() {
    let large = MkfsOptions { node_size_bytes: Some(65536), ..MkfsOptions::default() };
    fill_with_snapshots("large nodes", 400 << 20, &large);
}

#[test]
fn with_mixed_groups() {
    let mixed = MkfsOptions { mixed: true, ..MkfsOptions::default() };
    fill_with_snapshots("mixed", 256 << 20, &mixed);
}
