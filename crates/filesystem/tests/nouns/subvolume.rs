//! Subvolumes and snapshots.

use std::hint;
use std::sync::Barrier;
use std::thread;

use larder_filesystem::{Error, ErrorKind, Inode, RenameMode, SnapshotKind, Timestamp};
use larder_format::Uuid;

use super::{Disk, lookup, make_file, new, open_file, read, refused, top, write};

#[test]
fn a_snapshot_stays_as_it_was() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let file = make_file(&root, "file");
    write(&file, b"bread", 0);
    let subvolume = fs.subvolume("/").unwrap();
    root.snapshot_child("monday".as_ref(), &subvolume, SnapshotKind::ReadOnly).unwrap();
    write(&file, b"jam  ", 0);
    root.remove_child("file".as_ref()).unwrap();
    fs.sync().unwrap();
    drop((file, subvolume, root, fs));
    disk.check();
    let fs = disk.open();
    let monday = lookup(&top(&fs), "monday").and_then(Inode::into_directory).unwrap();
    let kept = open_file(&monday, "file");
    assert_eq!(read(&kept), b"bread");
    assert_eq!(refused(kept.write_at(b"x", 0)), ErrorKind::ReadOnly);
}

#[test]
fn a_deleted_subvolume_gives_its_space_back() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    fs.sync().unwrap();
    let before = fs.used_bytes();
    let made = root.create_child_subvolume("sub".as_ref(), &new(0o040_755)).unwrap();
    write(&make_file(&made.root().unwrap(), "file"), &vec![1; 1 << 20], 0);
    fs.sync().unwrap();
    assert!(fs.used_bytes() >= before + (1 << 20));
    drop(made);
    root.delete_child_subvolume("sub".as_ref()).unwrap();
    assert_eq!(refused(lookup(&root, "sub")), ErrorKind::NotFound);
    fs.delete_unlinked();
    fs.sync().unwrap();
    assert!(fs.used_bytes() < before + (1 << 20), "its data is freed");
    disk.check();
}

/// A subvolume is moved into one that is being deleted: one of the two is refused.
#[test]
fn a_subvolume_that_gains_another_is_not_deleted() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    root.create_child_subvolume("moved".as_ref(), &new(0o040_755)).unwrap();
    let start = Barrier::new(2);
    for round in 0..2000 {
        let into = root.create_child_subvolume("into".as_ref(), &new(0o040_755)).unwrap();
        let into = into.root().unwrap();
        let (name, mode) = ("moved".as_ref(), RenameMode::Replace);
        let (moved, gone) = thread::scope(|scope| {
            let moves = scope.spawn(|| {
                start.wait();
                (0..round % 50 * 20).for_each(|_| hint::spin_loop());
                root.rename_child(name, &into, name, mode)
            });
            start.wait();
            let gone = root.delete_child_subvolume("into".as_ref());
            (moves.join().unwrap(), gone)
        });
        assert!(moved.is_err() || gone.is_err(), "it was moved into a deleted subvolume");
        if moved.is_ok() {
            into.rename_child(name, &root, name, mode).unwrap();
        }
        drop(into);
        if gone.is_err() {
            root.delete_child_subvolume("into".as_ref()).unwrap();
        }
    }
    drop((root, fs));
    disk.check();
}

#[test]
fn a_deleted_subvolume_is_received_from_nowhere() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let made = root.create_child_subvolume("sub".as_ref(), &new(0o040_755)).unwrap();
    root.delete_child_subvolume("sub".as_ref()).unwrap();
    let received = made.set_received(Uuid::new_v4(), 1, Timestamp::now());
    assert_eq!(refused(received), ErrorKind::NotFound);
    drop((made, root, fs));
    disk.check();
}

#[test]
fn whole_files_and_trees_are_as_in_std_fs() {
    let disk = Disk::new();
    let fs = disk.open();
    let top = fs.subvolume("/").unwrap();
    top.create_directory("d", 0o755).unwrap();
    let long: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    top.write("d/long", &long).unwrap();
    top.write("d/short", "bread").unwrap();
    assert_eq!(top.read("d/long").unwrap(), long);
    top.write("d/long", "butter").unwrap();
    assert_eq!(top.read("d/long").unwrap(), b"butter");
    // A copy has the permissions, shares the data, and replaces what is there.
    top.write("d/long", &long).unwrap();
    assert_eq!(top.copy("d/long", "d/copy").unwrap(), 3_000_000);
    assert_eq!(top.copy("d/short", "d/copy").unwrap(), 5);
    assert_eq!(top.read("d/copy").unwrap(), b"bread");
    assert_eq!(top.copy("d/long", "d/long").unwrap(), 3_000_000);
    assert_eq!(top.read("d/long").unwrap(), long);
    assert_eq!(top.read("d/nothing").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(top.write("d", "bread").unwrap_err().kind(), ErrorKind::IsADirectory);
    fs.sync().unwrap();
    disk.check();
    // A tree goes with subvolumes in it, and nothing that a symbolic link leads to.
    top.create_subvolume("d/sub").unwrap();
    top.write("d/sub/file", "crumbs").unwrap();
    top.write("kept", "kept").unwrap();
    top.symlink("kept", "d/link").unwrap();
    let paths = top.root().unwrap().walk().map(|found| found.unwrap().path);
    let mut paths: Vec<_> = paths.map(|path| path.display().to_string()).collect();
    assert!(
        paths.iter().position(|path| path == "d") < paths.iter().position(|path| path == "d/sub")
    );
    paths.sort();
    let expected = ["d", "d/copy", "d/link", "d/long", "d/short", "d/sub", "d/sub/file", "kept"];
    assert_eq!(paths, expected);
    top.remove_all("d/link").unwrap();
    top.remove_all("d").unwrap();
    assert_eq!(top.read("kept").unwrap(), b"kept");
    assert_eq!(top.root().unwrap().walk().count(), 1);
    fs.sync().unwrap();
    disk.check();
}

#[test]
fn directories_are_created_on_the_way() {
    let disk = Disk::new();
    let fs = disk.open();
    let top = fs.subvolume("/").unwrap();
    let made = top.create_directory_all("a/b/c", 0o700).unwrap();
    assert_eq!(made.metadata().mode & 0o7777, 0o700);
    assert_eq!(top.create_directory_all("/a/b/../b/c/", 0o755).unwrap(), made);
    assert_eq!(top.create_directory_all("", 0o755).unwrap(), top.root().unwrap());
    top.write("a/file", "bread").unwrap();
    top.symlink("nowhere", "a/link").unwrap();
    let exists = |path| top.exists(path).map_err(|error| error.kind());
    assert_eq!(
        ["", "a/b", "a/file", "a/link", "x"].map(exists),
        [true, true, true, false, false].map(Ok)
    );
    assert_eq!(exists("a/file/x"), Err(ErrorKind::NotADirectory));
    let refused = |path| top.create_directory_all(path, 0o755).unwrap_err().kind();
    assert_eq!(["a/file", "a/file/x"].map(refused), [ErrorKind::NotADirectory; 2]);
    let top_levels = fs.subvolumes().filter(|info| info.as_ref().unwrap().is_top_level());
    assert_eq!(top_levels.count(), 1);
    let deep = "d/".repeat(300);
    top.create_directory_all(&deep, 0o755).unwrap();
    assert!(top.exists(&deep).unwrap());
}

#[test]
fn a_file_is_opened_or_created() {
    let disk = Disk::new();
    let fs = disk.open();
    let top = fs.subvolume("/").unwrap();
    let made = top.open_or_create("file", 0o600).unwrap();
    assert_eq!(made.metadata().mode & 0o7777, 0o600);
    let found = top.open_or_create("file", 0o644).unwrap();
    assert_eq!(found, made);
    assert_eq!(found.metadata().mode & 0o7777, 0o600);
    assert_eq!(top.open_or_create("/", 0o644).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(top.open_or_create("none/file", 0o644).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_error_names_the_path_and_has_the_problem_without_it() {
    let disk = Disk::new();
    let error = disk.open().subvolume("/").unwrap().read("none").unwrap_err();
    assert_eq!(error.to_string(), "none: No such file or directory");
    assert_eq!(error.problem().to_string(), "No such file or directory");
    assert_eq!(error.problem().kind(), error.kind());
}

/// A check is about the subvolume that is deleted, whatever other threads do after it.
#[test]
fn what_was_checked_is_what_is_deleted() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let [own, _] = ["own", "other"].map(|name| {
        let made = root.create_child_subvolume(name.as_ref(), &new(0o040_755)).unwrap();
        made.id()
    });
    let name = "own".as_ref();
    let deleted = root.delete_child_subvolume_if(name, |found| {
        if found.subvolume_id() != own {
            return Err(Error::NotPermitted("it is of another user"));
        }
        let exchange = || root.rename_child(name, &root, "other".as_ref(), RenameMode::Exchange);
        thread::scope(|scope| scope.spawn(exchange).join().unwrap())
    });
    assert_eq!(refused(deleted), ErrorKind::NotFound);
    assert_eq!(root.child("other".as_ref()).unwrap().subvolume_id(), own);
    assert_ne!(root.child(name).unwrap().subvolume_id(), own);
    fs.sync().unwrap();
    disk.check();
}
