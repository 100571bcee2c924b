//! Deleted subvolumes: their open inodes work as before, and the rest goes with the last handle.

use std::collections::HashSet;

use larder::{ErrorKind, File, Filesystem, SnapshotKind, Subvolume};
use larder_power_cuts::assert_sound;

use super::faults;
use super::on_memory::{assert_has, file_system};

const LEN_BYTES: usize = 3 << 20;

/// A subvolume `doomed` with a folder and files, and dirty data in both.
fn doomed(fs: &Filesystem, root: &Subvolume) -> [File; 2] {
    let doomed = root.create_subvolume("doomed").unwrap();
    doomed.create_directory("folder", 0o755).unwrap();
    ["file", "folder/file"].map(|path| {
        let file = doomed.create(path, 0o644).unwrap();
        file.write_at(&vec![1; LEN_BYTES / 2], 0).unwrap();
        fs.sync().unwrap();
        file.write_at(&vec![1; LEN_BYTES / 2], LEN_BYTES as u64 / 2).unwrap();
        file
    })
}

#[test]
fn an_open_file_of_a_deleted_subvolume_works_until_it_is_closed() {
    let (fs, root, memory) = file_system("deleted-open");
    fs.sync().unwrap();
    let used_before = fs.used_bytes();
    let files = doomed(&fs, &root);
    root.delete_subvolume("doomed").unwrap();
    assert_eq!(root.lookup("doomed").unwrap_err().kind(), ErrorKind::NotFound);
    let id = files[0].subvolume_id();
    assert_eq!(fs.subvolume_by_id(id).unwrap_err().kind(), ErrorKind::NotFound);
    // If its space were free, these would get it.
    for number in 0..4 {
        let other = root.create(format!("other-{number}"), 0o644).unwrap();
        other.write_at(&vec![2; LEN_BYTES], 0).unwrap();
        fs.sync().unwrap();
    }
    for file in &files {
        assert_has(file, &vec![1; LEN_BYTES]);
        file.write_at(&[3; 10_000], 5_000).unwrap();
        file.sync().unwrap();
        file.write_at(&[4; 10_000], 1 << 20).unwrap();
        fs.sync().unwrap();
        let mut expected = vec![1; LEN_BYTES];
        expected[5_000..15_000].fill(3);
        expected[1 << 20..][..10_000].fill(4);
        assert_has(&file.clone(), &expected);
        file.set_len(100).unwrap();
        file.write_at(&vec![5; 300_000], 0).unwrap();
    }
    let cut = memory.snapshot();
    assert_sound([&cut], "it is in use");
    let [first, second] = files;
    drop(first);
    fs.delete_unlinked();
    assert_has(&second, &vec![5; 300_000]);
    drop(second);
    fs.delete_unlinked();
    for number in 0..4 {
        root.remove_file(format!("other-{number}")).unwrap();
    }
    fs.sync().unwrap();
    fs.sync().unwrap();
    assert!(fs.used_bytes() < used_before + (1 << 20), "its room came back");
    assert!(fs.subvolumes().all(|info| info.unwrap().id != id));
    assert_sound([&memory.snapshot()], "it is gone");
    // What a power cut leaves of it goes when the file system is opened.
    let fs = faults::open(cut).unwrap();
    assert!(fs.subvolumes().all(|info| info.unwrap().id != id));
}

#[test]
fn folders_of_a_deleted_subvolume_work_but_its_root_is_a_removed_one() {
    let (fs, root, memory) = file_system("deleted-folders");
    let [file, _] = doomed(&fs, &root);
    let doomed = file.subvolume().clone();
    root.delete_subvolume("doomed").unwrap();
    doomed.create("folder/new", 0o644).unwrap().write_at(b"new", 0).unwrap();
    doomed.rename("folder/new", "folder/newer").unwrap();
    doomed.create_directory("folder/inner", 0o755).unwrap();
    doomed.rename("folder/inner", "folder/moved").unwrap();
    doomed.remove_file("folder/file").unwrap();
    let names = |path| {
        let entries = doomed.open_directory(path).unwrap().entries().unwrap();
        entries.map(|entry| entry.unwrap().name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("folder"), ["newer", "moved"]);
    doomed.open_file("file").unwrap();
    doomed.create_unnamed("", 0o600).unwrap();
    doomed.root().unwrap().set_xattr("user.a", b"1", larder::XattrMode::Any).unwrap();
    let refused = [
        doomed.root().unwrap().entries().map(drop),
        doomed.create("new", 0o644).map(drop),
        doomed.create_directory("new", 0o755).map(drop),
        doomed.symlink("x", "new").map(drop),
        doomed.remove_file("file"),
        doomed.remove_directory("folder"),
        doomed.rename("file", "new"),
        doomed.rename("folder/newer", "new"),
        doomed.rename("file", "folder/file"),
        doomed.hard_link("file", "new"),
        doomed.create_subvolume("folder/nested").map(drop),
        doomed.snapshot("folder/nested", SnapshotKind::Writable).map(drop),
        doomed.snapshot_to(&root, "snapshot", SnapshotKind::Writable).map(drop),
        root.snapshot_to(&doomed, "folder/nested", SnapshotKind::ReadOnly).map(drop),
    ];
    let kinds = refused.map(|result| result.unwrap_err().kind());
    assert_eq!(kinds, [ErrorKind::NotFound; 14]);
    fs.sync().unwrap();
    assert_sound([&memory.snapshot()], "it changed while deleted");
    // Its queued items and dirty data go with it.
    for number in 0..100 {
        let file = doomed.create(format!("folder/{number}"), 0o644).unwrap();
        file.write_at(&[1; 5000], 0).unwrap();
    }
    let queued = |fs: &Filesystem| fs.stats().delayed.queued_items;
    assert!(queued(&fs) > 0);
    drop((file, doomed));
    fs.delete_unlinked();
    assert_eq!(queued(&fs), 0);
    fs.sync().unwrap();
    assert_sound([&memory.snapshot()], "it is gone");
}

#[test]
fn neither_subvolumes_nor_inodes_get_a_number_that_another_had() {
    let (fs, root, _memory) = file_system("numbers");
    let mut ids = HashSet::new();
    for _ in 0..3 {
        let made = root.create_subvolume("made").unwrap().id();
        root.delete_subvolume("made").unwrap();
        let snapshot = root.snapshot("snapshot", SnapshotKind::ReadOnly).unwrap().id();
        root.delete_subvolume("snapshot").unwrap();
        fs.sync().unwrap();
        assert!(ids.insert(made) && ids.insert(snapshot), "{made}, {snapshot} after {ids:?}");
    }
    root.create_subvolume("kept").unwrap();
    let mut numbers = HashSet::new();
    for _ in 0..3 {
        let number = root.create_node("kept/f", 0o100_644, (0, 0)).unwrap().number();
        root.remove_file("kept/f").unwrap();
        fs.sync().unwrap();
        assert!(numbers.insert(number), "{number} after {numbers:?}");
    }
}

#[test]
fn an_empty_subvolume_is_removed_as_a_directory() {
    let (fs, root, memory) = file_system("rmdir");
    let kind = |path: &str| root.remove_directory(path).unwrap_err().kind();
    root.create_subvolume("outer").unwrap();
    root.create_subvolume("outer/inner").unwrap();
    root.create("outer/inner/file", 0o644).unwrap();
    assert_eq!([kind("outer"), kind("outer/inner")], [ErrorKind::DirectoryNotEmpty; 2]);
    root.remove_file("outer/inner/file").unwrap();
    let inner = root.resolve("outer/inner").unwrap().into_subvolume().unwrap();
    inner.set_read_only(true).unwrap();
    let held = inner.root().unwrap();
    drop(inner);
    root.remove_directory("outer/inner").unwrap();
    assert_eq!(held.entries().unwrap_err().kind(), ErrorKind::NotFound);
    drop(held);
    fs.set_default_subvolume(root.resolve("outer").unwrap().subvolume_id()).unwrap();
    assert_eq!(kind("outer"), ErrorKind::NotPermitted);
    fs.set_default_subvolume(5).unwrap();
    root.remove_directory("outer").unwrap();
    fs.delete_unlinked();
    fs.sync().unwrap();
    assert_eq!(fs.subvolumes().filter(|info| info.as_ref().unwrap().is_being_deleted).count(), 0);
    assert_sound([&memory.snapshot()], "both are gone");
}
