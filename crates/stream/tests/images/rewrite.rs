//! Files whose whole content and times a receiver replaces at once, beside files that get the same
//! step by step.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::fs;

use larder_filesystem::{
    AllocateMode, Directory, ErrorKind, File, Filesystem, Inode, NewInode, Result, SetAttributes,
    Timestamp, XattrMode,
};
use larder_format::item::InodeFlags;
use larder_testkit::assert_same;

use crate::support::{EmptyImage, assert_sound, open_writable, sendable};

const NODATACOW: InodeFlags = InodeFlags::NODATACOW;
const CAPABILITY: &str = "security.capability";
/// `cap_net_raw`, permitted and effective.
const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The state of a file, and whether its content can be replaced at once.
struct Case {
    name: &'static str,
    make: fn(&File) -> Result<()>,
    content: &'static [u8],
    is_possible: bool,
}

const CASES: [Case; 14] = [
    Case { name: "longer", make: |file| short(file, 100), content: &[7; 300], is_possible: true },
    Case { name: "shorter", make: |file| short(file, 2000), content: &[7; 1], is_possible: true },
    Case { name: "as long", make: |file| short(file, 300), content: &[7; 300], is_possible: true },
    Case { name: "empty", make: |_| Ok(()), content: &[7; 2000], is_possible: true },
    Case { name: "extent", make: |file| short(file, 4000), content: &[7; 9], is_possible: true },
    Case { name: "hole", make: |file| file.set_len(3000), content: &[7; 9], is_possible: true },
    Case {
        name: "allocated",
        make: |file| file.allocate(0, 4096, AllocateMode::Grow),
        content: &[7; 9],
        is_possible: true,
    },
    Case {
        name: "with attributes",
        make: |file| {
            short(file, 90)?;
            file.set_xattr("user.one", b"1", XattrMode::Any)?;
            file.set_xattr(CAPABILITY, &CAPABILITIES, XattrMode::Any)
        },
        content: &[7; 80],
        is_possible: true,
    },
    Case { name: "long", make: |file| short(file, 4097), content: &[7; 9], is_possible: false },
    Case {
        name: "allocated after its end",
        make: |file| {
            short(file, 50)?;
            file.allocate(8192, 4096, AllocateMode::KeepSize)
        },
        content: &[7; 9],
        is_possible: false,
    },
    Case {
        name: "in place",
        make: |file| file.set_attributes(&flags(NODATACOW)),
        content: &[7; 9],
        is_possible: false,
    },
    Case {
        name: "compressed",
        make: |file| {
            file.set_attributes(&flags(InodeFlags::COMPRESS))?;
            short(file, 900)
        },
        content: &[7; 900],
        is_possible: false,
    },
    Case { name: "to nothing", make: |file| short(file, 90), content: &[], is_possible: false },
    Case {
        name: "to more than fits inline",
        make: |file| short(file, 90),
        content: &[7; 4000],
        is_possible: false,
    },
];

fn short(file: &File, len_bytes: usize) -> Result<()> {
    file.write_at(&vec![b'a'; len_bytes], 0)
}

fn flags(flags: InodeFlags) -> SetAttributes {
    SetAttributes { flags: Some(flags), ..SetAttributes::default() }
}

fn times(seconds: i64) -> SetAttributes {
    let time = Some(Timestamp { seconds, nanoseconds: 3 });
    SetAttributes { atime: time, mtime: time, ctime: time, ..SetAttributes::default() }
}

fn new(mode: u32) -> NewInode {
    NewInode { mode, uid: 0, gid: 0, umask: 0, device: (0, 0) }
}

fn folder(filesystem: &Filesystem, name: &str) -> Directory {
    let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    let made = top.create_child(name.as_ref(), &new(0o040_755)).expect("made");
    made.into_directory().expect("a directory")
}

fn make_file(folder: &Directory, name: &str) -> File {
    let made = folder.create_child(name.as_ref(), &new(0o100_644)).expect("made");
    made.into_file().expect("a file")
}

fn step_by_step(file: &File, content: &[u8], times: &SetAttributes) -> Result<()> {
    if !content.is_empty() {
        file.write_at(content, 0)?;
    }
    file.set_len(content.len() as u64)?;
    file.set_attributes(times)
}

/// The whole content of a file.
fn content_of(file: &File) -> Vec<u8> {
    let mut content = vec![0; 10_000];
    let len_bytes = file.read_at(&mut content, 0).expect("read");
    content.truncate(len_bytes);
    content
}

#[test]
fn replacing_at_once_is_like_step_by_step() {
    let image = EmptyImage::new();
    {
        let filesystem = open_writable(image.device());
        let folders = ["at once", "step by step"].map(|name| folder(&filesystem, name));
        let [at_once, steps] = folders.each_ref().map(|folder| {
            CASES.each_ref().map(|case| {
                let file = make_file(folder, case.name);
                (case.make)(&file).unwrap_or_else(|error| panic!("{}: {error}", case.name));
                file
            })
        });
        filesystem.sync().expect("durable");
        for ((case, file), other) in CASES.iter().zip(&at_once).zip(&steps) {
            let (name, before) = (case.name, content_of(file));
            let is_done = file.rewrite(case.content, &times(77));
            assert_eq!(is_done.expect(name), case.is_possible, "{name}");
            if !case.is_possible {
                assert_eq!(content_of(file), before, "{name}");
                step_by_step(file, case.content, &times(77)).expect(name);
            }
            step_by_step(other, case.content, &times(77)).expect(name);
            assert_eq!(content_of(file), case.content, "{name}");
        }
        for folder in &folders {
            folder.set_attributes(&times(77)).expect("set");
        }
        filesystem.sync().expect("durable");
    }
    assert_sound(image.device());
    let mount = image.mount("noatime");
    let [at_once, steps] =
        ["at once", "step by step"].map(|name| sendable(&mount.path().join(name)));
    assert_same(&steps, &at_once);
    let blocks = |folder: &str, name: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(mount.path().join(folder).join(name)).expect("it is there").blocks()
    };
    for case in &CASES {
        assert_eq!(
            blocks("at once", case.name),
            blocks("step by step", case.name),
            "{}",
            case.name
        );
    }
}

#[test]
fn pending_writes_are_not_overtaken() {
    let image = EmptyImage::new();
    {
        let filesystem = open_writable(image.device());
        let file = make_file(&folder(&filesystem, "folder"), "file");
        for len_bytes in [20, 30, 10] {
            let content = vec![8; len_bytes];
            assert!(file.rewrite(&content, &times(78)).expect("not an error"));
            file.write_at(&[9; 5], len_bytes as u64).expect("written");
            assert!(!file.rewrite(b"other", &times(77)).expect("not an error"));
            assert_eq!(content_of(&file), [&content, &[9; 5][..]].concat());
            filesystem.sync().expect("durable");
        }
    }
    assert_sound(image.device());
    let mount = image.mount("noatime");
    let found = fs::read(mount.path().join("folder/file")).expect("read");
    assert_eq!(found, [&[8; 10][..], &[9; 5]].concat());
}

#[test]
fn protected_files_are_not_replaced() {
    let image = EmptyImage::new();
    {
        let filesystem = open_writable(image.device());
        let folder = folder(&filesystem, "folder");
        let refused = Inode::clone(&folder).into_file().map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::IsADirectory));
        for (name, kept) in [("append", InodeFlags::APPEND), ("never", InodeFlags::IMMUTABLE)] {
            let file = make_file(&folder, name);
            short(&file, 30).expect("written");
            file.set_attributes(&flags(kept)).expect("set");
            filesystem.sync().expect("durable");
            let refused = file.rewrite(b"content", &times(77)).map_err(|error| error.kind());
            assert_eq!(refused, Err(ErrorKind::NotPermitted), "{name}");
            assert_eq!(content_of(&file), [b'a'; 30], "{name}");
        }
        let file = make_file(&folder, "owned");
        short(&file, 30).expect("written");
        filesystem.sync().expect("durable");
        let more = SetAttributes { uid: Some(5), ..times(77) };
        assert!(!file.rewrite(b"content", &more).expect("not an error"));
        assert_eq!((file.item().uid.get(), content_of(&file)), (0, vec![b'a'; 30]));
        filesystem.sync().expect("durable");
    }
    assert_sound(image.device());
}
