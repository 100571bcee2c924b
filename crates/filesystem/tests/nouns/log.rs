//! The log tree: fsynced changes survive a power cut, without a commit.

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_filesystem::Inode;
use larder_format::Superblock;
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_test_devices::{Recording, Survival};

use super::{Disk, lookup, make_directory, make_file, open, open_file, read, top, write};

#[test]
fn synced_changes_are_replayed_after_a_power_cut() {
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&Disk::new().0)));
    let root = top(&fs);
    let folder = make_directory(&root, "folder");
    fs.sync().unwrap();
    let generation = fs.generation();
    let file = make_file(&folder, "synced");
    write(&file, &[6; 10_000], 0);
    file.sync().unwrap();
    write(&file, &[7; 10_000], 0);
    make_file(&root, "not-synced");
    assert_eq!(fs.generation(), generation, "there was no commit");

    let mut replay = recording.replay();
    replay.advance_to(recording.position());
    let left = Disk(Arc::new(replay.power_cut(|_, _| Survival::Lost).remove(0)));
    left.check();
    let fs = left.open();
    let folder = lookup(&top(&fs), "folder").and_then(Inode::into_directory).unwrap();
    assert_eq!(read(&open_file(&folder, "synced")), [6; 10_000]);
    assert!(lookup(&top(&fs), "not-synced").is_err());
    fs.sync().unwrap();
    left.check();
}

/// Databases sync a new journal, and then its directory.
#[test]
fn a_directory_is_synced_along_with_a_file_that_is_new_in_it() {
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&Disk::new().0)));
    let root = top(&fs);
    let folder = make_directory(&root, "folder");
    make_file(&folder, "old");
    fs.sync().unwrap();
    folder.remove_child("old".as_ref()).unwrap();
    let file = make_file(&folder, "new");
    write(&file, b"journal", 0);
    file.sync().unwrap();
    let position = recording.position();
    folder.sync().unwrap();
    assert_eq!(recording.position(), position, "there was nothing left to write");

    let mut replay = recording.replay();
    replay.advance_to(position);
    let left = Disk(Arc::new(replay.power_cut(|_, _| Survival::Lost).remove(0)));
    left.check();
    let folder = lookup(&top(&left.open()), "folder").and_then(Inode::into_directory).unwrap();
    assert_eq!(read(&open_file(&folder, "new")), b"journal");
    assert!(lookup(&folder, "old").is_err());
}

#[test]
fn a_directory_is_synced_by_itself_if_others_in_it_are_not_or_are_many() {
    let recording = Recording::new();
    let fs = open(Arc::new(recording.attach(&Disk::new().0)));
    let root = top(&fs);
    make_file(&root, "unsynced");
    make_file(&root, "new").sync().unwrap();
    let position = recording.position();
    let mut replay = recording.replay();
    replay.advance_to(position);
    let left = Disk(Arc::new(replay.power_cut(|_, _| Survival::Lost).remove(0)));
    assert!(lookup(&top(&left.open()), "unsynced").is_err());
    (0..10).for_each(|number| make_file(&root, &format!("other-{number}")).sync().unwrap());
    let position = recording.position();
    root.sync().unwrap();
    assert_ne!(recording.position(), position);

    let mut replay = recording.replay();
    replay.advance_to(recording.position());
    let left = Disk(Arc::new(replay.power_cut(|_, _| Survival::Lost).remove(0)));
    left.check();
    assert!(lookup(&top(&left.open()), "other-9").is_ok());
}

fn first_superblock(device: &MemoryDevice) -> Box<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, OFFSETS[0].0).unwrap();
    Superblock::parse(&bytes, OFFSETS[0]).unwrap()
}

/// A crash came after the copies of the superblock were written, and before the first one, which
/// leads to the log of the commit before. The kernel reads the first one only: nothing may change
/// what that leads to.
#[test]
fn a_first_superblock_that_is_older_than_its_copies_is_renewed_before_anything_changes() {
    let disk = Disk::new();
    let fs = disk.open();
    let file = make_file(&top(&fs), "file");
    fs.sync().unwrap();
    write(&file, b"logged", 0);
    file.sync().unwrap();
    let old = disk.0.snapshot();
    write(&file, b"committed", 0);
    fs.sync().unwrap();
    let generation = fs.generation();
    drop((file, fs));
    let mut bytes = [0; SUPERBLOCK_SIZE];
    old.read_at(&mut bytes, OFFSETS[0].0).unwrap();
    disk.0.write_at(&bytes, OFFSETS[0].0).unwrap();
    let left = first_superblock(&disk.0);
    assert!(left.generation.get() < generation && left.log_root.get() != 0);

    let fs = disk.open();
    let renewed = first_superblock(&disk.0);
    assert_eq!((renewed.generation.get(), renewed.log_root.get()), (generation, 0));
    assert_eq!(fs.generation(), generation, "there was no commit");
    assert_eq!(read(&open_file(&top(&fs), "file")), b"committed");
    drop(fs);
    disk.check();
}
