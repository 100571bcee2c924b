//! The lock that makes a writer the only one.
//!
//! # Invariants
//! - The lock is `flock`'s on the inode itself: it holds whatever name a writer used, and ends with
//!   the open file, so also with a killed process.
//! - The lock of a block device that a process holds which started this one counts as this one's:
//!   programs lock a disk, so that udev does not probe it, and run mkfs meanwhile (systemd-repart,
//!   `udevadm lock`). The kernel's exclusive claim excludes other writers there.
//! - A writer through a loop device holds the lock of every file and device beneath it too, so that
//!   it excludes a writer that opens one of those directly.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::usage::{Identity, InUse, Link, MAX_CHAIN, Mounts, backing_path, find_use};

/// How often a writer tries before it gives up.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Makes the opener of `file` its only writer until `file` and the returned files are closed: those
/// beneath a loop device, none for others.
///
/// Some locks are held only for a moment: by udev as it probes a disk, by another [`is_locked`], by
/// a process that has a loop device open while it is being detached, or by a child between fork and
/// exec that still has a lock's file open. Hence the retries.
pub(crate) fn exclude_others(
    file: &File,
    identity: Identity,
    mounts: Mounts,
) -> io::Result<Result<Vec<File>, InUse>> {
    for _ in 1..ATTEMPTS {
        match try_exclude_others(file, identity, mounts)? {
            Err(by) if by.may_pass() => thread::sleep(PAUSE),
            settled => return Ok(settled),
        }
    }
    try_exclude_others(file, identity, mounts)
}

fn try_exclude_others(
    file: &File,
    identity: Identity,
    mounts: Mounts,
) -> io::Result<Result<Vec<File>, InUse>> {
    let locked = try_lock(file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(match find_use(identity, mounts) {
        Some(by) => Err(by),
        None if !locked => Err(InUse::Locked),
        None => lock_backing_files(identity),
    })
}

/// Whether a process holds the exclusive lock.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    let free = try_lock(file, FlockOperation::NonBlockingLockShared)?;
    if free {
        flock(file, FlockOperation::Unlock)?;
    }
    Ok(!free)
}

fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(is_lent(file)),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the lock of a block device is held by a process that started this one, or that started
/// its starter, and so on.
fn is_lent(file: &File) -> bool {
    let (Ok(metadata), Ok(locks)) = (file.metadata(), fs::read_to_string("/proc/locks")) else {
        return false;
    };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let (dev, inode) = (metadata.dev(), metadata.ino());
    let inode = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let holder = locks.lines().find_map(|line| holder_in(line, &inode));
    holder.is_some_and(|holder| ancestors().any(|ancestor| ancestor == holder))
}

/// The process that has the lock of `inode`, if that is what a line of `/proc/locks` tells:
/// `1: FLOCK  ADVISORY  WRITE 812 00:06:345 0 EOF`.
fn holder_in(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_held = words.next()? == "FLOCK";
    let (process, locked) = (words.nth(2)?, words.next()?);
    (is_held && locked == inode).then(|| process.parse().ok()).flatten()
}

/// The process that started this one, the one that started that, and so on.
fn ancestors() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(std::os::unix::process::parent_id()), |process| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name of the program comes before, and may contain anything.
        let (_, after) = stat.rsplit_once(')')?;
        after.split_whitespace().nth(1)?.parse().ok().filter(|process| *process != 0)
    })
}

/// Takes the exclusive locks of everything beneath a loop device; an empty list for all else.
///
/// Skips files that cannot be opened or locked, because their names are gone or in another mount
/// namespace, or because their file systems have no locks.
pub(crate) fn lock_backing_files(mut identity: Identity) -> Result<Vec<File>, InUse> {
    let mut locks = Vec::new();
    while locks.len() < MAX_CHAIN
        && let Some(path) = backing_path(identity)
        && let Ok(file) = File::open(&path)
        && let Ok(metadata) = file.metadata()
        && let Some(beneath) = Identity::of(&metadata)
    {
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap_or(true) {
            let then = Some(Box::new(InUse::Locked));
            return Err(InUse::Linked { link: Link::BackedBy, other: path, then });
        }
        locks.push(file);
        identity = beneath;
    }
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_in_its_line() {
        let line = "1: FLOCK  ADVISORY  WRITE 812 00:06:345 0 EOF";
        assert_eq!(holder_in(line, "00:06:345"), Some(812));
        assert_eq!(holder_in(line, "00:06:34"), None);
        // One that waits, and one of another kind.
        let line = "1: -> FLOCK  ADVISORY  WRITE 812 00:06:345 0 EOF";
        assert_eq!(holder_in(line, "00:06:345"), None);
        assert_eq!(holder_in("2: POSIX  ADVISORY  READ 7 00:06:345 0 EOF", "00:06:345"), None);
        assert!(ancestors().count() > 0);
    }
}
