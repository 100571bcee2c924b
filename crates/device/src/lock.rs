//! The lock that makes a writer the only one.
//!
//! # Invariants
//! - The lock is `flock`'s on the inode itself: it holds whatever name a writer used, and ends with
//!   the open file, so also with a killed process.
//! - A writer through a loop device holds the lock of every file and device beneath it too, so that
//!   it excludes a writer that opens one of those directly.

use std::fs::File;
use std::io;
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
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
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
