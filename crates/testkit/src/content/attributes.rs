//! Times, modes, owners and inode flags.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, IFlags, Timespec, Timestamps, ioctl_getflags, ioctl_setflags, utimensat,
};

use super::Content;
use super::write::{create, file};
use crate::random::Random;

pub(super) fn fill(folder: &Path, _: &mut Random, content: &Content) -> io::Result<()> {
    times(folder)?;
    modes(folder)?;
    owners(folder)?;
    flags(folder)?;
    inherited_flag(folder, "folder-dirsync", IFlags::DIRSYNC)?;
    if content.without_checksums {
        inherited_flag(folder, "folder-nodatacow", IFlags::NOCOW)?;
    }
    Ok(())
}

fn times(folder: &Path) -> io::Result<()> {
    for (name, seconds, nanoseconds) in [
        ("epoch", 0, 0),
        ("last-nanosecond", 1_700_000_000, 999_999_999),
        ("before-1970", -1, 1),
        ("long-before-1970", -86_400 * 365 * 60, 123_456_789),
        ("after-2038", 1 << 31, 5),
        ("after-2106", (1 << 32) + 7, 6),
        ("far-future", 1 << 40, 7),
    ] {
        let path = folder.join(name);
        create(&path)?;
        let at = |seconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: at(seconds - 3), last_modification: at(seconds) };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn modes(folder: &Path) -> io::Result<()> {
    for mode in [0o000, 0o400, 0o777, 0o1777, 0o2755, 0o4755, 0o6755, 0o7777] {
        let path = folder.join(format!("file-mode-{mode:04o}"));
        file(&path, b"#!/bin/sh\n")?;
        std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
        let path = folder.join(format!("folder-mode-{mode:04o}"));
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn owners(folder: &Path) -> io::Result<()> {
    const LARGEST: u32 = u32::MAX - 1;
    for (uid, gid) in [(0, 1), (1000, 100), (65_534, 65_534), (70_000, 70_001), (LARGEST, LARGEST)]
    {
        let path = folder.join(format!("owner-{uid}-{gid}"));
        create(&path)?;
        chown(&path, Some(uid), Some(gid))?;
    }
    let path = folder.join("owner-of-symlink");
    symlink("owner-0-1", &path)?;
    lchown(&path, Some(4242), Some(2424))
}

fn flags(folder: &Path) -> io::Result<()> {
    for (name, flag) in [
        ("append-only", IFlags::APPEND),
        ("no-atime", IFlags::NOATIME),
        ("no-dump", IFlags::NODUMP),
        ("synchronous", IFlags::SYNC),
        ("immutable", IFlags::IMMUTABLE),
    ] {
        set_flag(&file(&folder.join(name), b"flagged")?, flag)?;
    }
    Ok(())
}

fn inherited_flag(folder: &Path, name: &str, flag: IFlags) -> io::Result<()> {
    let path = folder.join(name);
    std::fs::create_dir(&path)?;
    set_flag(&File::open(&path)?, flag)?;
    file(&path.join("inherits"), &[b'i'; 5000]).map(drop)
}

fn set_flag(file: &File, flag: IFlags) -> io::Result<()> {
    ioctl_setflags(file, ioctl_getflags(file)? | flag)?;
    Ok(())
}
