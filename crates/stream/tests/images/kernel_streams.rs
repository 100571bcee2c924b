//! Streams of the kernel: read, dumped, and written again byte for byte.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::path::Path;

use jiff::tz::TimeZone;
use larder_stream::{Command, Reader, Timestamp, Version, Writer, dump, encode};
use larder_testkit::{Content, ImageSpec, KernelImage, Scratch};

use crate::support::{kernel_dump, kernel_send, snapshot};

const HEADER_LEN: usize = 17;

/// Both programs dump a stream alike, and it is written again as it was.
#[track_caller]
fn assert_understood(stream: &[u8], version: Version, scratch: &Path) {
    let mut text = Vec::new();
    dump(stream, &mut text, &TimeZone::UTC).unwrap_or_else(|error| panic!("{error}"));
    let expected = kernel_dump(stream, scratch);
    for (ours, theirs) in text.split(|&b| b == b'\n').zip(expected.split(|&b| b == b'\n')) {
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
    }
    assert_eq!(text.len(), expected.len());

    let mut copy = stream[..HEADER_LEN].to_vec();
    let mut reader = Reader::new(stream);
    while let Some(command) = reader.next().expect("the stream is right") {
        encode(&command, version, &mut copy).expect("it was short enough before");
    }
    assert!(copy == stream, "the stream written again differs");
}

#[test]
fn streams_of_the_kernel_are_read_dumped_and_written_again() {
    let spec = ImageSpec::new("streams").mount_option("compress=zstd").devices(&[512 << 20]);
    let image = KernelImage::build(&spec, &Content::new(31));
    let scratch = Scratch::new();
    let mount = image.mount("noatime");
    let (root, before) = (mount.path(), mount.path().join("before"));
    snapshot(root, &before);
    std::fs::rename(root.join("data"), root.join("moved data")).expect("renamed");
    std::fs::write(root.join("moved data/n\u{e9}w\t\u{1}\\name"), b"bread").expect("written");
    std::fs::remove_file(root.join("moved data/text-4096")).expect("removed");
    let after = root.join("after");
    snapshot(root, &after);
    mount.sync();

    let check = |version: Version, options: &[&str], parent: Option<&Path>, snapshot: &Path| {
        let number = version.number().to_string();
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"--proto", &number];
        arguments.extend(options.iter().map(|option| option as &dyn AsRef<std::ffi::OsStr>));
        if let Some(parent) = &parent {
            arguments.extend([&"-p" as &dyn AsRef<std::ffi::OsStr>, parent]);
        }
        let stream = kernel_send(&arguments, snapshot, scratch.path());
        assert_understood(&stream, version, scratch.path());
    };
    check(Version::V1, &[], None, &before);
    check(Version::V1, &[], Some(&before), &after);
    check(Version::V1, &["--no-data"], None, &after);
    check(Version::V2, &[], None, &before);
    check(Version::V2, &["--compressed-data"], None, &before);
    check(Version::V2, &["--compressed-data"], Some(&before), &after);
}

#[test]
fn every_command_is_dumped_as_btrfs_progs_does() {
    let uuid = larder_format::Uuid::from_bytes(std::array::from_fn(|n| 17 * n as u8));
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    let long = vec![5; 70_000];
    let path: &[u8] =
        b"a \x07\x08\x1b\x0c\n\r\t\x0b\\\x7f\xe9\x01\"'long enough to pass all columns";
    let commands = [
        Command::Subvol { path: b"sub vol", uuid, ctransid: u64::MAX },
        Command::Mkfile { path, ino: 257 },
        Command::Mkdir { path: b"folder/", ino: 257 },
        Command::Mknod { path: b"node", ino: 258, rdev: 0x10_052c, mode: 0o20644 },
        Command::Mkfifo { path: b"fifo", ino: 259, rdev: Some(0), mode: Some(0o10644) },
        Command::Mksock { path: b"socket", ino: 260, rdev: Some(0), mode: Some(0o140_755) },
        Command::Symlink { path: b"link", ino: 261, target: path },
        Command::Rename { path, to: b"to here" },
        Command::Link { path: b"one more", existing: path },
        Command::Unlink { path: b"gone" },
        Command::Rmdir { path: b"" },
        Command::SetXattr { path: b"x", name: b"user.a b", data: b"a b\n\xff\0behind" },
        Command::SetXattr { path: b"x", name: b"user.empty", data: b"" },
        Command::RemoveXattr { path: b"x", name: b"user.a b" },
        Command::Write { path: b"x", offset: 1 << 40, data: b"jam" },
        Command::Clone {
            path: b"x",
            offset: 4096,
            len: 8192,
            clone_uuid: uuid,
            clone_ctransid: 3,
            clone_path: b"from here",
            clone_offset: 1,
        },
        Command::Truncate { path: b"x", size: 77 },
        Command::Chmod { path: b"", mode: 0o7755 },
        Command::Chown { path: b"x", uid: 1, gid: u64::from(u32::MAX) },
        Command::Utimes {
            path: b"x",
            atime: time(-1 << 38, 5),
            mtime: time(0, 0),
            ctime: time(253_402_207_200, 999_999_999),
            otime: Some(time(3, 4)),
        },
        Command::UpdateExtent { path: b"x", offset: 0, len: 1 },
        Command::Fallocate { path: b"x", mode: 3, offset: 4096, len: 4096 },
        Command::Fileattr { path: b"x", attributes: 255 },
        Command::EncodedWrite {
            path: b"x",
            offset: 0,
            unencoded_file_len: 131_072,
            unencoded_len: 131_072,
            unencoded_offset: 0,
            compression: Some(2),
            encryption: Some(0),
            data: &long,
        },
        Command::Snapshot { path: b"s", uuid, ctransid: 1, clone_uuid: uuid, clone_ctransid: 2 },
        Command::Mkfile { path: b"in it", ino: 1 },
        Command::End,
    ];
    let mut writer = Writer::new(Vec::new(), Version::V2).expect("memory");
    for command in &commands {
        writer.write(command).expect("short enough");
    }
    let scratch = Scratch::new();
    assert_understood(&writer.into_inner(), Version::V2, scratch.path());
}
