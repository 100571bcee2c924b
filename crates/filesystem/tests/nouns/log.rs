//! The log tree: fsynced changes survive a power cut, without a commit.

use std::sync::Arc;

use larder_filesystem::Inode;
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
