//! Describing a tree through the kernel.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, StatxTimestamp, statx};
use rustix::io::Errno;

use super::{Body, ContentHash, Entry, Manifest, Timestamp};
use crate::sparse_file::data_ranges;

/// `STATX_SUBVOL`.
const STATX_SUBVOLUME: StatxFlags = StatxFlags::from_bits_retain(0x8000);
/// The inode number of the folder in place of a subvolume that is not in this snapshot.
const EMPTY_SUBVOLUME_FOLDER: u64 = 2;
/// Longer holes are assumed to read as zeros: reading a terabyte takes too long.
const LARGEST_HOLE_READ_BYTES: u64 = 64 << 20;

impl Manifest {
    /// Describes the tree below `root`, with every subvolume in it, as the kernel shows it.
    ///
    /// Mount it with `noatime` or read-only, or the walk changes it. Panics with the path if a file
    /// cannot be read.
    #[track_caller]
    pub fn of_tree(root: &Path) -> Self {
        let mut manifest = Self::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(relative) = pending.pop() {
            let path =
                if relative.as_os_str().is_empty() { root.into() } else { root.join(&relative) };
            let entry = describe(&path)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
            if let Body::Folder { names } = &entry.body {
                let inside =
                    names.iter().map(|name| relative.join(std::ffi::OsStr::from_bytes(name)));
                pending.extend(inside);
            }
            manifest.insert(relative.into_os_string().into_vec(), entry);
        }
        manifest
    }
}

fn describe(path: &Path) -> io::Result<Entry> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | STATX_SUBVOLUME;
    let status = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    let kind = FileType::from_raw_mode(status.stx_mode.into());
    let opened = matches!(kind, FileType::RegularFile | FileType::Directory)
        .then(|| File::open(path))
        .transpose()?;
    let made_up = status.stx_ino == EMPTY_SUBVOLUME_FOLDER;
    let time = |time| if made_up { Timestamp::default() } else { timestamp(time) };
    Ok(Entry {
        permissions: status.stx_mode & 0o7777,
        uid: status.stx_uid,
        gid: status.stx_gid,
        nlink: status.stx_nlink,
        size_bytes: status.stx_size,
        allocated_bytes: status.stx_blocks * 512,
        atime: time(status.stx_atime),
        mtime: time(status.stx_mtime),
        ctime: time(status.stx_ctime),
        otime: time(status.stx_btime),
        inode: status.stx_ino,
        subvolume: status.stx_subvol,
        flags: opened.as_ref().and_then(flags),
        xattrs: xattrs(path)?,
        body: body(path, kind, &status, opened)?,
    })
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// `None` also if the file system has no inode flags, such as that of a copy's source.
fn flags(file: &File) -> Option<u32> {
    rustix::fs::ioctl_getflags(file).ok().map(|flags| flags.bits())
}

fn body(path: &Path, kind: FileType, status: &Statx, opened: Option<File>) -> io::Result<Body> {
    let number = (status.stx_rdev_major, status.stx_rdev_minor);
    Ok(match (kind, opened) {
        (FileType::RegularFile, Some(file)) => {
            let data = data_ranges(&file)?;
            Body::File { hash: content_hash(&file, status.stx_size, &data)?, data }
        }
        (FileType::Directory, _) => Body::Folder { names: names(path)? },
        (FileType::Symlink, _) => {
            Body::Symlink { target: std::fs::read_link(path)?.into_os_string().into_vec() }
        }
        (FileType::CharacterDevice, _) => Body::CharacterDevice { number },
        (FileType::BlockDevice, _) => Body::BlockDevice { number },
        (FileType::Fifo, _) => Body::Fifo,
        (FileType::Socket, _) => Body::Socket,
        (kind, _) => return Err(io::Error::other(format!("unknown type {kind:?}"))),
    })
}

fn names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_vec())).collect()
}

fn content_hash(file: &File, size_bytes: u64, data: &[Range<u64>]) -> io::Result<u64> {
    let mut hash = ContentHash::new();
    let mut offset = 0;
    for range in data {
        hash_hole(file, &mut hash, offset..range.start)?;
        hash_read(file, &mut hash, range.clone())?;
        offset = range.end;
    }
    hash_hole(file, &mut hash, offset..size_bytes)?;
    Ok(hash.finish())
}

fn hash_hole(file: &File, hash: &mut ContentHash, hole: Range<u64>) -> io::Result<()> {
    let len_bytes = hole.end - hole.start;
    if len_bytes <= LARGEST_HOLE_READ_BYTES {
        return hash_read(file, hash, hole);
    }
    hash.skip_hole(len_bytes);
    Ok(())
}

fn hash_read(file: &File, hash: &mut ContentHash, range: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; (range.end - range.start).min(1 << 20) as usize];
    let mut offset = range.start;
    while offset < range.end {
        let piece = buffer.len().min((range.end - offset) as usize);
        file.read_exact_at(&mut buffer[..piece], offset)?;
        hash.update(&buffer[..piece]);
        offset += piece as u64;
    }
    Ok(())
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    const LARGEST_BYTES: usize = 1 << 16;
    let mut list = Vec::with_capacity(LARGEST_BYTES);
    match rustix::fs::llistxattr(path, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(errno) => return Err(errno.into()),
    }
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = Vec::with_capacity(LARGEST_BYTES);
            rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value))?;
            Ok((name.to_vec(), value))
        })
        .collect()
}
