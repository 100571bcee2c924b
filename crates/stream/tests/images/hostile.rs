//! Hostile streams, received into an image and into a mounted directory.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use larder_filesystem::Inode;
use larder_format::Uuid;
use larder_stream::{
    Command, Event, ImageTarget, MountedTarget, ReceiveError, ReceiveOptions, Target, Timestamp,
    Version, Writer, receive,
};
use larder_testkit::{Manifest, assert_same};

use crate::support::{EmptyImage, assert_sound, btrfs, open, open_writable};

const UUID: Uuid = Uuid::from_bytes([7; 16]);

/// A stream of these commands in a subvolume `received`.
fn stream(commands: &[Command<'_>]) -> Vec<u8> {
    let mut stream = Writer::new(Vec::new(), Version::V3).expect("written");
    let first = Command::Subvol { path: b"received", uuid: UUID, ctransid: 7 };
    for command in [first].iter().chain(commands).chain([&Command::End]) {
        stream.write(command).expect("written");
    }
    stream.into_inner()
}

/// The number of commands that could not be applied, and the result.
fn receive_all(stream: &[u8], target: &mut dyn Target) -> (usize, Option<ReceiveError>) {
    let mut failed = 0;
    let options = ReceiveOptions { max_errors: 0, ..ReceiveOptions::default() };
    let outcome = receive(stream, target, &options, &mut |event| {
        if let Event::Failed(error) = event {
            eprintln!("{error}");
            failed += 1;
        }
        ControlFlow::Continue(())
    });
    (failed, outcome.err())
}

/// Receives a stream into an image and into a mounted directory: first commands that can be
/// applied, then others that cannot. Nothing except the subvolume may change.
#[track_caller]
fn assert_harmless(good: &[Command<'_>], bad: &[Command<'_>]) {
    let image = EmptyImage::new();
    let around = |mount: &Path| {
        let mut manifest = Manifest::of_tree(&mount.join("around"));
        // Its folder has changed, and nothing else.
        manifest
            .entries
            .retain(|path, _| path != b"target" && !path.starts_with(b"target/received"));
        manifest
    };
    let before = {
        let mount = image.mount("noatime");
        let folder = mount.path().join("around");
        fs::create_dir_all(folder.join("target")).expect("made");
        fs::write(folder.join("victim"), b"bread").expect("written");
        fs::write(folder.join("target/victim"), b"bread").expect("written");
        mount.sync();
        around(mount.path())
    };
    let stream = stream(&[good, bad].concat());
    let expect = |(failed, error): (usize, Option<ReceiveError>)| {
        assert_eq!(failed, bad.len());
        assert_eq!(error.is_some(), !bad.is_empty());
    };
    {
        let filesystem = open_writable(image.device());
        let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
        let target =
            top.lookup("around/target").and_then(Inode::into_directory).expect("it is there");
        expect(receive_all(&stream, &mut ImageTarget::new(target)));
        filesystem.sync().expect("durable");
    }
    assert_sound(image.device());
    let mount = image.mount("noatime");
    assert_same(&before, &around(mount.path()));
    let folder = mount.path().join("around/target");
    btrfs(&[&"-q", &"subvolume", &"delete", &folder.join("received")]);
    expect(receive_all(&stream, &mut MountedTarget::open(&folder).expect("it opens")));
    assert_same(&before, &around(mount.path()));
}

const TIME: Timestamp = Timestamp { seconds: 1, nanoseconds: 2 };

#[test]
fn no_path_leads_out() {
    let file = Command::Mkfile { path: b"file", ino: 1 };
    for path in [&b"../victim"[..], b"/victim", b"a/../../victim", b"..", b"./x", b"x/", b"a//b"] {
        let bad = [
            Command::Mkfile { path, ino: 1 },
            Command::Mkdir { path, ino: 1 },
            Command::Symlink { path, ino: 1, target: b"x" },
            Command::Rename { path, to: b"mine" },
            Command::Rename { path: b"file", to: path },
            Command::Link { path: b"mine", existing: path },
            Command::Link { path, existing: b"file" },
            Command::Unlink { path },
            Command::Rmdir { path },
            Command::Write { path, offset: 0, data: b"x" },
            Command::Truncate { path, size: 0 },
            Command::Chmod { path, mode: 0 },
            Command::SetXattr { path, name: b"user.x", data: b"x" },
            Command::Utimes { path, atime: TIME, mtime: TIME, ctime: TIME, otime: None },
            Command::Clone {
                offset: 0,
                len: 4096,
                path: b"file",
                clone_uuid: UUID,
                clone_ctransid: 7,
                clone_path: path,
                clone_offset: 0,
            },
        ];
        assert_harmless(&[file], &bad);
    }
}

#[test]
fn no_symbolic_link_is_followed() {
    let good = [
        Command::Symlink { path: b"up", ino: 1, target: b".." },
        Command::Symlink { path: b"victim", ino: 2, target: b"../victim" },
        Command::Mkfile { path: b"file", ino: 3 },
        Command::Chown { path: b"victim", uid: 5, gid: 5 },
        Command::Utimes { path: b"victim", atime: TIME, mtime: TIME, ctime: TIME, otime: None },
        Command::Symlink { path: b"new", ino: 4, target: b"../victim" },
    ];
    let bad = [
        Command::Chmod { path: b"new", mode: 0o600 },
        Command::Mkfile { path: b"up/mine", ino: 1 },
        Command::Mkdir { path: b"up/mine", ino: 1 },
        Command::Rename { path: b"up/victim", to: b"mine" },
        Command::Rename { path: b"file", to: b"up/mine" },
        Command::Link { path: b"mine", existing: b"up/victim" },
        Command::Unlink { path: b"up/victim" },
        Command::Write { path: b"victim", offset: 0, data: b"x" },
        Command::Write { path: b"up/victim", offset: 0, data: b"x" },
        Command::Truncate { path: b"victim", size: 0 },
        Command::Chmod { path: b"victim", mode: 0o4777 },
        Command::SetXattr { path: b"victim", name: b"user.x", data: b"x" },
        Command::SetXattr { path: b"up/victim", name: b"user.x", data: b"x" },
        Command::Clone {
            offset: 0,
            len: 4096,
            path: b"file",
            clone_uuid: UUID,
            clone_ctransid: 7,
            clone_path: b"victim",
            clone_offset: 0,
        },
    ];
    assert_harmless(&good, &bad);
}

#[test]
fn excessive_and_invalid_commands_are_refused() {
    let good = [
        Command::Mkfile { path: b"file", ino: 1 },
        Command::Mkfifo { path: b"pipe", ino: 2, rdev: None, mode: None },
        Command::Truncate { path: b"file", size: 1 << 40 },
        Command::Fileattr { path: b"file", attributes: u64::MAX },
    ];
    let encoded = |unencoded_len, unencoded_offset, compression| Command::EncodedWrite {
        path: b"file",
        offset: 0,
        unencoded_file_len: 4096,
        unencoded_len,
        unencoded_offset,
        compression: Some(compression),
        encryption: None,
        data: b"nothing that decompresses",
    };
    let bad = [
        Command::Truncate { path: b"file", size: u64::MAX },
        Command::Write { path: b"file", offset: u64::MAX - 1, data: b"xx" },
        Command::Write { path: b"pipe", offset: 0, data: b"x" },
        Command::Fallocate { path: b"file", mode: 0, offset: 0, len: 1 << 62 },
        Command::Fallocate { path: b"file", mode: 0x40, offset: 0, len: 4096 },
        encoded(u64::MAX, 0, 2),
        encoded(4096, u64::MAX, 1),
        encoded(4096, 0, 99),
        encoded(4096, 0, 0),
        Command::Mknod { path: b"node", ino: 3, rdev: 0, mode: 0o100_644 },
        Command::EnableVerity {
            path: b"file",
            algorithm: 1,
            block_size: 4096,
            salt: b"",
            signature: b"",
        },
        Command::Clone {
            offset: 0,
            len: 1 << 62,
            path: b"file",
            clone_uuid: UUID,
            clone_ctransid: 7,
            clone_path: b"file",
            clone_offset: 1 << 41,
        },
        Command::Clone {
            offset: 0,
            len: 4096,
            path: b"file",
            clone_uuid: Uuid::from_bytes([9; 16]),
            clone_ctransid: 7,
            clone_path: b"file",
            clone_offset: 0,
        },
    ];
    assert_harmless(&good, &bad);
}

#[test]
fn names_of_subvolumes_lead_nowhere() {
    let image = EmptyImage::new();
    let filesystem = open_writable(image.device());
    let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    for path in [&b"../x"[..], b"/x", b"a/b", b"..", b".", b"", b"x\0y", &[b'x'; 256]] {
        let mut stream = Writer::new(Vec::new(), Version::V1).expect("written");
        let command = Command::Subvol { path, uuid: UUID, ctransid: 7 };
        stream.write(&command).expect("written");
        let (_, error) = receive_all(&stream.into_inner(), &mut ImageTarget::new(top.clone()));
        assert!(error.expect("it is refused").unfinished.is_none());
    }
    assert!(top.entries().expect("it is read").next().is_none());
}

/// The file system of [`nothing_is_read_that_was_not_sent`]: a secret in the top level, and in a
/// subvolume that lies in a read-only one.
struct Secrets {
    image: EmptyImage,
    top: Uuid,
    outer: Uuid,
    /// Number of the secret in the top level.
    inode: u64,
}

const SECRET: &[u8] = &[b's'; 4096];

impl Secrets {
    fn new() -> Self {
        let image = EmptyImage::new();
        let inode = {
            let mount = image.mount("noatime");
            let path = |name: &str| mount.path().join(name);
            for name in ["outer", "outer/inner"] {
                btrfs(&[&"-q", &"subvolume", &"create", &path(name)]);
            }
            for name in ["secret", "outer/inner/secret"] {
                fs::write(path(name), SECRET).expect("written");
            }
            btrfs(&[&"property", &"set", &path("outer"), &"ro", &"true"]);
            fs::create_dir(path("target")).expect("made");
            mount.sync();
            fs::metadata(path("secret")).expect("there").ino()
        };
        let filesystem = open(image.device());
        let uuid = |path: &str| {
            let subvolume = filesystem.subvolume(path).expect("it is there");
            subvolume.root_item().uuid()
        };
        let (top, outer) = (uuid("/"), uuid("outer"));
        Self { image, top, outer, inode }
    }

    /// Receives a stream of this origin, whose one command after the file must fail.
    fn assert_kept(&self, uuid: Uuid, begin: Command<'_>, last: &[Command<'_>]) {
        let stream = {
            let mut stream = Writer::new(Vec::new(), Version::V2).expect("written");
            let file = Command::Mkfile { path: b"loot", ino: 257 };
            for command in [begin, file].iter().chain(last).chain([&Command::End]) {
                stream.write(command).expect("written");
            }
            stream.into_inner()
        };
        let what = format!("{uuid}: {begin:?} {last:?}");
        {
            let filesystem = open_writable(self.image.device());
            let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("open");
            let target = top.lookup("target").and_then(Inode::into_directory).expect("there");
            let (_, error) = receive_all(&stream, &mut ImageTarget::new(target));
            assert!(error.is_some(), "into an image: {what}");
            filesystem.sync().expect("durable");
        }
        let mount = self.image.mount("noatime");
        let target = mount.path().join("target");
        let assert_nothing = || {
            for name in ["received/loot", "received/secret"] {
                let read = fs::read(target.join(name)).unwrap_or_default();
                assert!(!read.windows(8).any(|part| part == &SECRET[..8]), "{what}");
            }
        };
        let delete = || {
            if target.join("received").exists() {
                btrfs(&[&"-q", &"subvolume", &"delete", &target.join("received")]);
            }
        };
        assert_nothing();
        delete();
        let mut mounted = MountedTarget::open(&target).expect("it opens");
        let (_, error) = receive_all(&stream, &mut mounted);
        assert!(error.is_some(), "into a mount: {what}");
        assert_nothing();
        delete();
    }
}

#[test]
fn nothing_is_read_that_was_not_sent() {
    let secrets = Secrets::new();
    let clone = |len, clone_uuid, clone_path| Command::Clone {
        offset: 0,
        len,
        path: b"loot",
        clone_uuid,
        clone_ctransid: 0,
        clone_path,
        clone_offset: 0,
    };
    let by_number = Uuid::from_u64_pair(5, secrets.inode);
    let filled = Command::Write { path: b"loot", offset: 0, data: b"x" };
    for uuid in [UUID, Uuid::nil()] {
        let begin = Command::Subvol { path: b"received", uuid, ctransid: 7 };
        for last in [
            clone(0, by_number, b""),
            clone(4096, by_number, b""),
            clone(0, Uuid::nil(), b"secret"),
            clone(4096, Uuid::nil(), b"secret"),
            clone(4096, secrets.top, b"secret"),
            clone(4096, secrets.top, b"outer/inner/secret"),
            clone(4096, secrets.outer, b"inner/secret"),
        ] {
            secrets.assert_kept(uuid, begin, &[last]);
            secrets.assert_kept(uuid, begin, &[filled, last]);
        }
    }
    for clone_uuid in [Uuid::nil(), by_number, secrets.top] {
        let (path, uuid) = (&b"received"[..], UUID);
        let begin = Command::Snapshot { path, uuid, ctransid: 7, clone_uuid, clone_ctransid: 0 };
        secrets.assert_kept(UUID, begin, &[]);
    }
}
