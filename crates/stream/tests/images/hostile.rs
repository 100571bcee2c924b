//! Hostile streams, received into an image and into a mounted directory.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use larder_filesystem::Inode;
use larder_format::Uuid;
use larder_stream::{
    Command, Event, ImageTarget, MountedTarget, ReceiveError, ReceiveOptions, Target, Timestamp,
    Version, Writer, receive,
};
use larder_testkit::{Manifest, assert_same};

use crate::support::{EmptyImage, assert_sound, btrfs, open_writable};

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
    ];
    let bad = [
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
        Command::Fileattr { path: b"file", attributes: u64::MAX },
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
