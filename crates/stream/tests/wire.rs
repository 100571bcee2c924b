//! Streams as data: they are read as written, and hostile ones are refused.

use std::io::Read;

use larder_format::{Uuid, crc32c};
use larder_stream::{
    Command, Reader, StreamError, StreamProblem, Timestamp, Version, Writer, encode,
};
use proptest::prelude::*;

const VERSIONS: [Version; 3] = [Version::V1, Version::V2, Version::V3];

/// The material of one command.
#[derive(Clone, Debug)]
struct Parts {
    kind: u8,
    path: Vec<u8>,
    other: Vec<u8>,
    data: Vec<u8>,
    numbers: [u64; 4],
    uuid: [u8; 16],
    time: (i64, u32),
    is_there: bool,
}

impl Parts {
    fn command(&self) -> Command<'_> {
        let (path, other, data) = (&*self.path, &*self.other, &*self.data);
        let [a, b, c, d] = self.numbers;
        let uuid = Uuid::from_bytes(self.uuid);
        let time = Timestamp { seconds: self.time.0, nanoseconds: self.time.1 };
        let optional = self.is_there.then_some(b);
        match self.kind {
            0 => Command::Subvol { path, uuid, ctransid: a },
            1 => Command::Snapshot { path, uuid, ctransid: a, clone_uuid: uuid, clone_ctransid: b },
            2 => Command::Mkfile { path, ino: a },
            3 => Command::Mkdir { path, ino: a },
            4 => Command::Mknod { path, ino: a, rdev: b, mode: c },
            5 => Command::Mkfifo { path, ino: a, rdev: optional, mode: optional },
            6 => Command::Mksock { path, ino: a, rdev: optional, mode: optional },
            7 => Command::Symlink { path, ino: a, target: other },
            8 => Command::Rename { path, to: other },
            9 => Command::Link { path, existing: other },
            10 => Command::Unlink { path },
            11 => Command::Rmdir { path },
            12 => Command::SetXattr { path, name: other, data },
            13 => Command::RemoveXattr { path, name: other },
            14 => Command::Write { path, offset: a, data },
            15 => Command::Clone {
                offset: a,
                len: b,
                path,
                clone_uuid: uuid,
                clone_ctransid: c,
                clone_path: other,
                clone_offset: d,
            },
            16 => Command::Truncate { path, size: a },
            17 => Command::Chmod { path, mode: a },
            18 => Command::Chown { path, uid: a, gid: b },
            19 => {
                let otime = self.is_there.then_some(time);
                Command::Utimes { path, atime: time, mtime: time, ctime: time, otime }
            }
            20 => Command::UpdateExtent { path, offset: a, len: b },
            21 => Command::Fallocate { path, mode: a as u32, offset: b, len: c },
            22 => Command::Fileattr { path, attributes: a },
            23 => Command::EncodedWrite {
                path,
                offset: a,
                unencoded_file_len: b,
                unencoded_len: c,
                unencoded_offset: d,
                compression: self.is_there.then_some(2),
                encryption: self.is_there.then_some(0),
                data,
            },
            _ => Command::EnableVerity {
                path,
                algorithm: a as u8,
                block_size: b as u32,
                salt: other,
                signature: data,
            },
        }
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let bytes = |longest| proptest::collection::vec(any::<u8>(), 0..longest);
    let text = (bytes(60), bytes(60), bytes(5000));
    let rest = (any::<[u64; 4]>(), any::<[u8; 16]>(), any::<(i64, u32)>(), any::<bool>());
    (0..25_u8, text, rest).prop_map(|(kind, (path, other, data), rest)| {
        let (numbers, uuid, time, is_there) = rest;
        Parts { kind, path, other, data, numbers, uuid, time, is_there }
    })
}

/// Reads to the end or to the first error. Returns the number of commands.
fn read_all(stream: &[u8]) -> Result<usize, StreamError> {
    let mut reader = Reader::new(stream);
    let mut count = 0;
    while reader.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

proptest! {
    #[test]
    fn commands_are_read_as_they_were_written(parts in proptest::collection::vec(parts(), 0..20), v in 0..3_usize) {
        let version = VERSIONS[v];
        let mut writer = Writer::new(Vec::new(), version).expect("memory");
        let mut written = Vec::new();
        for command in parts.iter().map(Parts::command).chain([Command::End]) {
            if writer.write(&command).is_ok() {
                written.push(command);
            }
        }
        // A version refuses only commands that it lacks.
        prop_assert!(version != Version::V3 || written.len() == parts.len() + 1);
        let stream = writer.into_inner();
        let mut reader = Reader::new(&*stream);
        for command in written {
            prop_assert_eq!(reader.next().expect("it is right"), Some(command));
        }
        prop_assert_eq!(reader.next().expect("it is right"), None);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_all(&bytes);
    }

    #[test]
    fn hostile_attributes_are_read_without_a_panic(
        number in 0..30_u16,
        attributes in proptest::collection::vec(any::<u8>(), 0..200),
        v in 0..3_usize,
    ) {
        let _ = read_all(&stream_of(VERSIONS[v], number, &attributes));
    }

    #[test]
    fn a_flipped_bit_is_found(parts in parts(), at in any::<usize>(), bit in 0..8) {
        let mut stream = Writer::new(Vec::new(), Version::V3).expect("memory");
        stream.write(&parts.command()).expect("short enough");
        stream.write(&Command::End).expect("short enough");
        let mut stream = stream.into_inner();
        let at = at % stream.len();
        stream[at] ^= 1_u8 << bit;
        // Only the version can be changed to another valid one.
        prop_assert!(at == 13 || read_all(&stream).is_err());
    }

    #[test]
    fn a_stream_cut_short_is_found(parts in parts(), cut in any::<usize>()) {
        let mut stream = Writer::new(Vec::new(), Version::V3).expect("memory");
        stream.write(&parts.command()).expect("short enough");
        stream.write(&Command::End).expect("short enough");
        let stream = stream.into_inner();
        let cut = 1 + cut % (stream.len() - 1);
        prop_assert!(read_all(&stream[..cut]).is_err());
    }
}

/// A stream of one command with a right checksum and any attributes.
fn stream_of(version: Version, number: u16, attributes: &[u8]) -> Vec<u8> {
    let mut command = (attributes.len() as u32).to_le_bytes().to_vec();
    command.extend(number.to_le_bytes());
    command.extend([0; 4]);
    command.extend(attributes);
    let checksum = crc32c::raw(0, &command);
    command[6..10].copy_from_slice(&checksum.to_le_bytes());
    let header = Writer::new(Vec::new(), version).expect("memory").into_inner();
    [header, command].concat()
}

#[track_caller]
fn problem(stream: &[u8]) -> (u64, StreamProblem) {
    let error = read_all(stream).expect_err("something is wrong");
    (error.offset, error.problem)
}

#[test]
fn errors_name_the_place() {
    assert!(matches!(problem(b"tar, perhaps"), (0, StreamProblem::NoStream)));
    assert!(matches!(problem(b"btrfs-stream\0\x09\0\0\0"), (0, StreamProblem::UnknownVersion(9))));
    let unknown = stream_of(Version::V1, 23, &[]);
    assert!(matches!(problem(&unknown), (17, StreamProblem::UnknownCommand(23))));
    let twice = stream_of(Version::V1, 11, &[15, 0, 1, 0, b'a', 15, 0, 1, 0, b'b']);
    assert!(matches!(problem(&twice), (32, StreamProblem::TwoOf(_))));
    let odd = stream_of(Version::V1, 17, &[15, 0, 0, 0, 4, 0, 2, 0, 1, 1]);
    assert!(matches!(problem(&odd), (17, StreamProblem::AttributeLength { len: 2, .. })));
    let none = stream_of(Version::V1, 12, &[]);
    assert!(matches!(problem(&none), (17, StreamProblem::MissingAttribute(_))));
    let beyond = stream_of(Version::V1, 12, &[15, 0, 2, 0, 1]);
    assert!(matches!(problem(&beyond), (27, StreamProblem::AttributeTooLong)));
    let strange = stream_of(Version::V1, 12, &[36, 0, 0, 0]);
    assert!(matches!(problem(&strange), (27, StreamProblem::UnknownAttribute(36))));
    let mut wrong = stream_of(Version::V1, 21, &[]);
    wrong[25] ^= 1;
    assert!(matches!(problem(&wrong), (17, StreamProblem::Checksum { .. })));
}

#[test]
fn a_false_length_takes_no_memory() {
    let mut stream = stream_of(Version::V2, 15, &[]);
    stream[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(problem(&stream), (17, StreamProblem::CommandTooLong { .. })));
    // The longest allowed command, from an input that never ends: no more than that is read.
    let longest = Version::V2.longest_command_bytes();
    stream[17..21].copy_from_slice(&(longest as u32).to_le_bytes());
    let mut input = stream.chain(std::io::repeat(0));
    let mut reader = Reader::new(&mut input);
    assert!(matches!(
        reader.next().expect_err("no checksum").problem,
        StreamProblem::Checksum { .. }
    ));
    assert!(reader.offset() <= (longest + 100) as u64);
}

#[test]
fn one_input_holds_several_streams() {
    let mut streams = Vec::new();
    for version in VERSIONS {
        let mut writer = Writer::new(&mut streams, version).expect("memory");
        writer.write(&Command::Unlink { path: b"a" }).expect("short enough");
        writer.write(&Command::End).expect("short enough");
    }
    assert_eq!(read_all(&streams).expect("all are right"), 6);
    let mut reader = Reader::new(&*streams);
    let mut seen = Vec::new();
    while reader.next().expect("all are right").is_some() {
        seen.extend(reader.version());
    }
    assert_eq!(seen, VERSIONS);
}

#[test]
fn version_1_has_no_room_for_long_data() {
    let data = vec![1; 65_536];
    let mut out = b"before".to_vec();
    let command = Command::Write { path: b"a", offset: 0, data: &data };
    let error = encode(&command, Version::V1, &mut out).expect_err("too long");
    assert_eq!((error.command, &*out), ("write", &b"before"[..]));
    encode(&command, Version::V2, &mut out).expect("this is what version 2 is for");
    let fallocate = Command::Fallocate { path: b"a", mode: 0, offset: 0, len: 1 };
    assert!(encode(&fallocate, Version::V1, &mut out).is_err());
}
