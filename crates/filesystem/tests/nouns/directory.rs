//! Names: created, moved, removed.

use std::cell::Cell;

use larder_filesystem::{
    Directory, Error, ErrorKind, Inode, MOST_WHOLE_BYTES, NewInode, RenameMode, Result,
    SetAttributes, Timestamp, WholeInode,
};

use super::{Disk, make_directory, make_file, new, open_file, read, refused, top, write};

fn names(directory: &Directory) -> Vec<String> {
    let entries = directory.entries().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().name().to_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

fn rename(from: (&Directory, &str), to: (&Directory, &str), mode: RenameMode) -> Result<()> {
    from.0.rename_child(from.1.as_ref(), to.0, to.1.as_ref(), mode)
}

#[test]
fn a_name_is_there_once() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    make_file(&root, "bread");
    let again = root.create_child("bread".as_ref(), &super::new(0o100_644));
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
        root.remove_child(name.as_ref()).unwrap();
    }
    assert_eq!(names(&root), expected);
    fs.sync().unwrap();
    drop((root, fs));
    disk.check();
    assert_eq!(names(&top(&disk.open())), expected);
}

/// A check is about the inode that loses its name, whatever other threads do after it.
#[test]
fn what_was_checked_is_what_loses_its_name() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let number = |name: &str| root.child(name.as_ref()).unwrap().number();
    let exchange = || rename((&root, "own"), (&root, "other"), RenameMode::Exchange).unwrap();
    let refused_as =
        |refused: Result<()>| assert_eq!(self::refused(refused), ErrorKind::NotPermitted);
    for is_directory in [false, true] {
        let make = |name: &str| {
            if is_directory {
                make_directory(&root, name);
            } else {
                make_file(&root, name);
            }
        };
        make("own");
        make("other");
        let own = number("own");
        // Another thread is faster, once.
        let asked = Cell::new(0);
        let may = |found: &Inode| {
            asked.set(asked.get() + 1);
            if found.number() != own {
                return Err(Error::NotPermitted("it is of another user"));
            }
            exchange();
            Ok(())
        };
        let name = "own".as_ref();
        let removed = if is_directory {
            root.remove_child_directory_if(name, may)
        } else {
            root.remove_child_if(name, may)
        };
        refused_as(removed);
        assert_eq!((asked.get(), names(&root).len()), (2, 2));
        // While names are renamed, other threads may remove and create some.
        let may = |found: &Inode, there: Option<&Inode>| {
            assert_eq!(there.map(Inode::number), Some(own));
            asked.set(asked.get() + 1);
            if asked.get() > 3 {
                assert_ne!(found.number(), own);
                return Err(Error::NotPermitted("it is of another user"));
            }
            if is_directory {
                root.remove_child_directory(name)?;
            } else {
                root.remove_child(name)?;
            }
            make("own");
            Ok(())
        };
        let to = "other".as_ref();
        refused_as(root.rename_child_if(name, &root, to, RenameMode::Replace, may));
        assert_eq!((asked.get(), number("other")), (4, own));
        for name in ["own", "other"] {
            let child = name.as_ref();
            let _ = if is_directory {
                root.remove_child_directory(child)
            } else {
                root.remove_child(child)
            };
        }
        assert!(names(&root).is_empty());
    }
    fs.sync().unwrap();
    disk.check();
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
    assert_eq!(read(&open_file(&root, "a")), b"c");
    rename((&root, "b"), (&folder, "c"), RenameMode::Replace).unwrap();
    assert_eq!(read(&open_file(&folder, "c")), b"b");
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
    let removed = root.remove_child_directory("outer".as_ref());
    assert_eq!(refused(removed), ErrorKind::DirectoryNotEmpty);
    fs.sync().unwrap();
    disk.check();
}

#[test]
fn values_that_no_inode_item_can_have_are_refused() {
    let disk = Disk::new();
    let fs = disk.open();
    let directory = top(&fs);
    let attributes = SetAttributes::default();
    let make_whole = |new: NewInode, content: &[u8]| {
        let content = content.to_vec();
        let mut whole = WholeInode { new, attributes: &attributes, xattrs: &[], content };
        whole.create_in(&directory, "whole".as_ref())
    };
    let device = |device| NewInode { device, ..new(0o020_644) };
    for bad in [new(0o1_100_644), new(0x8000_81a4), device((0x1000, 0)), device((0, 0x10_0000))] {
        assert_eq!(
            refused(directory.create_child("f".as_ref(), &bad)),
            ErrorKind::InvalidInput,
            "{bad:?}"
        );
        assert_eq!(refused(make_whole(bad, b"")), ErrorKind::InvalidInput, "{bad:?}");
    }
    let link = new(0o120_777);
    assert_eq!(
        refused(directory.symlink_child("l".as_ref(), "a\0b".as_ref(), &link)),
        ErrorKind::InvalidInput
    );
    assert_eq!(refused(make_whole(link, b"a\0b")), ErrorKind::InvalidInput);
    directory.create_child("d".as_ref(), &device((0xFFF, 0xF_FFFF))).unwrap();
    fs.sync().unwrap();
    disk.check();
}

fn make_whole(directory: &Directory, name: &str, content: &[u8]) -> Result<Inode> {
    let mtime = Some(Timestamp { seconds: 1000, nanoseconds: 7 });
    let attributes = SetAttributes { uid: Some(3), mtime, ..SetAttributes::default() };
    let (new, content) = (new(0o100_640), content.to_vec());
    let mut whole = WholeInode { new, attributes: &attributes, xattrs: &[], content };
    whole.create_in(directory, name.as_ref())
}

#[test]
fn a_file_is_made_with_its_data_and_attributes() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let content: Vec<u8> = (0..MOST_WHOLE_BYTES).map(|at| (at / 100) as u8).collect();
    let lengths = [0, 1, 2048, 2049, 4096, 4097, 100_000, MOST_WHOLE_BYTES];
    for len in lengths {
        make_whole(&root, &len.to_string(), &content[..len]).unwrap();
    }
    let more = [&content[..], b"x"].concat();
    assert_eq!(refused(make_whole(&root, "more", &more)), ErrorKind::InvalidInput);
    let look = |root: &Directory| {
        for len in lengths {
            let file = open_file(root, &len.to_string());
            assert_eq!(read(&file), content[..len], "{len}");
            let metadata = file.metadata();
            assert_eq!((metadata.uid, metadata.mtime.seconds), (3, 1000), "{len}");
        }
        assert_eq!(names(root).len(), lengths.len());
    };
    look(&root);
    fs.sync().unwrap();
    disk.check();
    drop((root, fs));
    look(&top(&disk.open()));
}

#[test]
fn on_a_full_disk_a_file_is_made_with_all_its_data_or_not_at_all() {
    let disk = Disk::new();
    let fs = disk.open();
    let root = top(&fs);
    let content = vec![7; MOST_WHOLE_BYTES];
    let full = (0..).find_map(|number| {
        make_whole(&root, &format!("f{number:04}"), &content).err().map(|error| (number, error))
    });
    let (made, error) = full.unwrap();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    fs.sync().unwrap();
    assert_eq!(names(&root).len(), made);
    for number in 0..made {
        assert_eq!(read(&open_file(&root, &format!("f{number:04}"))), content);
    }
    disk.check();
}
