//! The seeds of fuzzing: one small input of each kind, taken from an image or made here, so that no
//! corpus needs to be kept.

use std::path::Path;

use larder::{OpenOptions, XattrMode};
use larder_format::Uuid;
use larder_format::compression::{Algorithm, Compression, Compressor, ExtentKind};
use larder_stream::{Command, Timestamp, Version, Writer};
use zerocopy::IntoBytes;

use crate::Image;

/// Inputs of [`crate::superblock`].
pub fn superblocks(image: &Image) -> Vec<Vec<u8>> {
    vec![image.superblock().as_bytes().to_vec()]
}

/// Inputs of [`crate::tree_block`]: up to three blocks of each tree and level.
pub fn tree_blocks(image: &Image) -> Vec<Vec<u8>> {
    let choice = image.superblock().csum_type.get() as u8 | 4;
    image.blocks(3).into_iter().map(|block| [&[choice], &block[..]].concat()).collect()
}

/// Inputs of [`crate::decompression`]: every algorithm, inline and not.
pub fn streams() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0_u32..20_000).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let kinds = [(ExtentKind::Regular, 0, 60_000), (ExtentKind::Inline, 0x40, 4000)];
    let mut streams = Vec::new();
    for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (kind, choice, len) in kinds {
            let mut compressor = Compressor::new(Compression::from(algorithm));
            let mut stream = vec![0; len];
            let compressed = compressor.compress(&data[..len], &mut stream, 4096, kind);
            let stream_len = compressed.ok().flatten().expect("numbers are compressible");
            // An extent is whole sectors, an inline one ends with its stream.
            let padded = stream_len.next_multiple_of(4096);
            stream.truncate(if kind == ExtentKind::Inline { stream_len } else { padded });
            let len = (len as u32).to_le_bytes();
            let head = [choice + number as u8, len[0], len[1], len[2]];
            streams.push([&head, &stream[..]].concat());
        }
    }
    streams
}

/// Inputs of [`crate::open_and_walk`]: no patch, and some that change a byte of some blocks.
pub fn patches() -> Vec<Vec<u8>> {
    let patch = |n: u16| {
        let at = (u32::from(n) * 7919 % 16384) as u16;
        let places = [n.to_le_bytes(), at.to_le_bytes()].concat();
        [&places[..], &[0, n as u8, 0, 0, 0, 0, 0, 0, 0]].concat()
    };
    (0..16).map(|count| (0..count).flat_map(|n| patch(count * 37 + n)).collect()).collect()
}

/// Leaves an image as after a power cut after files and directories in it were synced: with logs,
/// for [`crate::log_replay`].
pub fn crash(image: &Path) -> larder::Result<()> {
    let options = OpenOptions::new().write(true).commit_interval(None);
    let fs = options.open([image])?;
    let root = fs.subvolume("/")?;
    root.create_directory("logged", 0o755)?;
    root.create("logged/renamed", 0o644)?.write_at(&[1; 9000], 0)?;
    fs.sync()?;
    for number in 0..20 {
        let file = root.create(format!("logged/file-{number}"), 0o644)?;
        file.write_at(&vec![number as u8; number * 1000], 0)?;
        file.set_xattr("user.number", &[number as u8], XattrMode::Any)?;
        file.sync()?;
    }
    root.rename("logged/renamed", "logged/name")?;
    root.hard_link("logged/file-1", "logged/link")?;
    root.remove_file("logged/file-2")?;
    root.open_directory("logged")?.sync()
}

/// Inputs of [`crate::stream_dump`] and [`crate::stream_receive`]: every command, in every version
/// of the stream, and an increment.
pub fn snapshots() -> Vec<Vec<u8>> {
    let versions = [Version::V1, Version::V2, Version::V3];
    versions.into_iter().map(|version| snapshot(version).expect("memory takes it")).collect()
}

fn snapshot(version: Version) -> std::io::Result<Vec<u8>> {
    let (uuid, ctransid) = (Uuid::from_bytes([7; 16]), 7);
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 5 };
    let large = vec![7; 20_000];
    let mut stream = Writer::new(Vec::new(), version)?;
    for command in [
        Command::Subvol { path: b"first", uuid, ctransid },
        Command::Utimes { path: b"", atime: time, mtime: time, ctime: time, otime: None },
        Command::Mkdir { path: b"folder", ino: 257 },
        Command::Mkfile { path: b"o258", ino: 258 },
        Command::Rename { path: b"o258", to: b"folder/small" },
        Command::Write { path: b"folder/small", offset: 0, data: b"bread" },
        Command::Mkfile { path: b"large", ino: 259 },
        Command::Write { path: b"large", offset: 0, data: &large },
        Command::Clone {
            offset: 32768,
            len: 16384,
            path: b"large",
            clone_uuid: uuid,
            clone_ctransid: ctransid,
            clone_path: b"large",
            clone_offset: 0,
        },
        Command::Truncate { path: b"large", size: 30_000 },
        Command::SetXattr { path: b"large", name: b"user.x", data: b"butter" },
        Command::RemoveXattr { path: b"large", name: b"user.x" },
        Command::Symlink { path: b"link", ino: 260, target: b"folder/small" },
        Command::Mkfifo { path: b"pipe", ino: 261, rdev: None, mode: None },
        Command::Mknod { path: b"null", ino: 262, rdev: 0x103, mode: 0o020_666 },
        Command::Mksock { path: b"socket", ino: 263, rdev: None, mode: None },
        Command::Link { path: b"folder/linked", existing: b"large" },
        Command::Chmod { path: b"large", mode: 0o640 },
        Command::Chown { path: b"large", uid: 5, gid: 6 },
        Command::UpdateExtent { path: b"large", offset: 0, len: 4096 },
    ] {
        stream.write(&command)?;
    }
    if version >= Version::V2 {
        let mut data = vec![0; 4096];
        let mut compressor = Compressor::new(Compression::from(Algorithm::Zlib));
        let _ = compressor.compress(&[7; 8192], &mut data, 4096, ExtentKind::Regular);
        stream.write(&Command::EncodedWrite {
            path: b"large",
            offset: 65536,
            unencoded_file_len: 8192,
            unencoded_len: 8192,
            unencoded_offset: 0,
            compression: Some(1),
            encryption: None,
            data: &data,
        })?;
        let [mode, punch] = [0, 3];
        stream.write(&Command::Fallocate { path: b"large", mode, offset: 0, len: 99_999 })?;
        stream.write(&Command::Fallocate { path: b"large", mode: punch, offset: 0, len: 4096 })?;
        stream.write(&Command::Fileattr { path: b"large", attributes: 0x40 })?;
    }
    if version >= Version::V3 {
        let (salt, signature): (&[u8], &[u8]) = (b"salt", b"");
        let (algorithm, block_size) = (1, 4096);
        let path = b"folder/small";
        stream.write(&Command::EnableVerity { path, algorithm, block_size, salt, signature })?;
    }
    for command in [
        Command::Snapshot {
            path: b"second",
            uuid: Uuid::from_bytes([8; 16]),
            ctransid: 9,
            clone_uuid: uuid,
            clone_ctransid: ctransid,
        },
        Command::Unlink { path: b"folder/small" },
        Command::Rename { path: b"folder", to: b"moved" },
        Command::Unlink { path: b"moved/linked" },
        Command::Rmdir { path: b"moved" },
        Command::End,
    ] {
        stream.write(&command)?;
    }
    Ok(stream.into_inner())
}
