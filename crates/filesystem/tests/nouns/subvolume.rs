//! Subvolumes and snapshots.

use larder_filesystem::{ErrorKind, Inode, SnapshotKind};

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
