//! Inodes: their links, and their lives without a name.

use super::{Disk, lookup, make_file, read, top, write};

#[test]
fn an_inode_lives_as_long_as_it_has_a_name_or_is_open() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let file = make_file(&root, "first");
    write(&file, &vec![1; 100_000], 0);
    root.link_child("second".as_ref(), &file).unwrap();
    assert_eq!(file.metadata().nlink, 2);
    root.remove_child("first".as_ref()).unwrap();
    root.remove_child("second".as_ref()).unwrap();
    fs.sync().unwrap();
    assert_eq!((file.metadata().nlink, read(&file)), (0, vec![1; 100_000]));
    let used = fs.used_bytes();
    drop(file);
    fs.delete_unlinked();
    fs.sync().unwrap();
    assert!(fs.used_bytes() < used, "its data is freed");
    disk.check();
}

/// A crash comes while a file without a name is open: the next opening deletes it.
#[test]
fn an_inode_without_a_name_is_deleted_after_a_crash() {
    let disk = Disk::new();
    let fs = disk.open();
    let empty = fs.used_bytes();
    let file = make_file(&top(&fs), "file");
    write(&file, &vec![1; 1 << 20], 0);
    top(&fs).remove_child("file".as_ref()).unwrap();
    fs.sync().unwrap();
    assert!(fs.used_bytes() >= empty + (1 << 20));
    let crashed = Disk(std::sync::Arc::new(disk.0.snapshot()));
    crashed.check();
    let fs = crashed.open();
    fs.sync().unwrap();
    assert!(lookup(&top(&fs), "file").is_err());
    assert!(fs.used_bytes() < empty + (1 << 20), "its data is freed");
    crashed.check();
}
