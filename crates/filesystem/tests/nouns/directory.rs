//! Names: created, moved, removed.

use larder_filesystem::{
    ErrorKind, Inode, NewInode, RenameMode, Result, SetAttributes, WholeInode,
};

use super::{Disk, lookup, make_directory, make_file, new, read, refused, top, write};

fn names(directory: &Inode) -> Vec<String> {
    let entries = directory.as_directory().unwrap().entries().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| String::from_utf8(entry.unwrap().name).unwrap()).collect();
    names.sort_unstable();
    names
}

fn rename(from: (&Inode, &str), to: (&Inode, &str), mode: RenameMode) -> Result<()> {
    let target = to.0.as_directory()?;
    from.0.as_directory()?.rename(from.1.as_bytes(), target, to.1.as_bytes(), mode)
}

#[test]
fn a_name_is_there_once() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    make_file(&root, "bread");
    let again = root.as_directory().unwrap().create(b"bread", &super::new(0o100_644));
    assert_eq!(refused(again), ErrorKind::AlreadyExists);
    assert_eq!(names(&root), ["bread"]);
    fs.sync().unwrap();
    disk.check();
}

#[test]
fn names_are_listed_before_and_after_a_commit() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let mut expected: Vec<String> = (0..300).map(|number| format!("name-{number:03}")).collect();
    for name in &expected {
        make_file(&root, name);
    }
    assert_eq!(names(&root), expected);
    fs.sync().unwrap();
    for name in expected.extract_if(.., |name| name.ends_with('7')) {
        root.as_directory().unwrap().unlink(name.as_bytes()).unwrap();
    }
    assert_eq!(names(&root), expected);
    fs.sync().unwrap();
    drop((root, fs));
    disk.check();
    assert_eq!(names(&top(&disk.open())), expected);
}

#[test]
fn a_rename_replaces_keeps_or_exchanges() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let folder = make_directory(&root, "folder");
    for (directory, name) in [(&root, "a"), (&root, "b"), (&folder, "c")] {
        write(&make_file(directory, name), name.as_bytes(), 0);
    }
    let no_replace = rename((&root, "a"), (&folder, "c"), RenameMode::NoReplace);
    assert_eq!(refused(no_replace), ErrorKind::AlreadyExists);
    rename((&root, "a"), (&folder, "c"), RenameMode::Exchange).unwrap();
    assert_eq!(read(&lookup(&root, "a").unwrap()), b"c");
    rename((&root, "b"), (&folder, "c"), RenameMode::Replace).unwrap();
    assert_eq!(read(&lookup(&folder, "c").unwrap()), b"b");
    assert_eq!(
        (names(&root), names(&folder)),
        (vec!["a".into(), "folder".into()], vec!["c".into()])
    );
    fs.sync().unwrap();
    disk.check();
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let outer = make_directory(&root, "outer");
    let inner = make_directory(&outer, "inner");
    let moved = rename((&root, "outer"), (&inner, "outer"), RenameMode::Replace);
    assert_eq!(refused(moved), ErrorKind::InvalidInput);
    let removed = root.as_directory().unwrap().rmdir(b"outer");
    assert_eq!(refused(removed), ErrorKind::DirectoryNotEmpty);
    fs.sync().unwrap();
    disk.check();
}

#[test]
fn values_that_no_inode_item_can_have_are_refused() {
    let disk = Disk::new();
    let fs = disk.open();
    let top = top(&fs);
    let directory = top.as_directory().unwrap();
    let attributes = SetAttributes::default();
    let make_whole = |new: NewInode, content: &[u8]| {
        let whole = WholeInode { new, attributes: &attributes, xattrs: &[], content };
        directory.create_whole(b"whole", &whole)
    };
    let device = |device| NewInode { device, ..new(0o020_644) };
    for bad in [new(0o1_100_644), new(0x8000_81a4), device((0x1000, 0)), device((0, 0x10_0000))] {
        assert_eq!(refused(directory.create(b"f", &bad)), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(refused(make_whole(bad, b"")), ErrorKind::InvalidInput, "{bad:?}");
    }
    let link = new(0o120_777);
    assert_eq!(refused(directory.symlink(b"l", b"a\0b", &link)), ErrorKind::InvalidInput);
    assert_eq!(refused(make_whole(link, b"a\0b")), ErrorKind::InvalidInput);
    directory.create(b"d", &device((0xFFF, 0xF_FFFF))).unwrap();
    fs.sync().unwrap();
    disk.check();
}
