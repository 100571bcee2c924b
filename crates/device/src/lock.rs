//! The lock that makes a writer the only one.
//!
//! # Invariants
//! - The lock is on the inode itself (`flock`; on Windows `LockFileEx`, which readers notice too): it
//!   holds whatever name a writer used, and ends with the open file, so also with a killed process.
//! - The lock of a block device that a process holds which started this one counts as this one's:
//!   programs lock a disk, so that udev does not probe it, and run mkfs meanwhile (systemd-repart,
//!   `udevadm lock`). The kernel's exclusive claim excludes other writers there.
//! - A writer through a loop device holds the lock of every file and device beneath it too, so that
//!   it excludes a writer that opens one of those directly.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::thread;
use std::time::Duration;

use crate::system::{Identity, backing_path, find_use, is_left, is_lent};
use crate::usage::{InUse, Link, MAX_CHAIN, Mounts};

/// How often a writer tries before it gives up.
const ATTEMPTS: u32 = 60;
/// The same if the holder of the lock is ending, which takes long for one with much memory.
const ATTEMPTS_AFTER_END: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Repeats `attempt` while a use of `wanted` that may pass prevents it.
///
/// Some uses last only for a moment. udev locks a disk while it probes it, and [`is_locked`] locks a
/// file while it asks. The kernel detaches a loop device when the last process closes it. A child
/// that another thread has started holds the locks and claims of all files that were open, until it
/// executes its program. A process that was killed holds its locks until its memory is freed.
pub(crate) fn wait_for_passing_use<T>(
    wanted: Option<&Metadata>,
    mut attempt: impl FnMut() -> io::Result<Result<T, InUse>>,
) -> io::Result<Result<T, InUse>> {
    let mut attempts = 1;
    loop {
        let goes_on =
            || attempts < ATTEMPTS || attempts < ATTEMPTS_AFTER_END && wanted.is_some_and(is_left);
        match attempt()? {
            Err(by) if by.may_pass() && goes_on() => thread::sleep(PAUSE),
            settled => return Ok(settled),
        }
        attempts += 1;
    }
}

/// Makes the opener of `file` its only writer until `file` and the returned files are closed: those
/// beneath a loop device, none for others.
pub(crate) fn exclude_others(
    file: &File,
    identity: Identity,
    mounts: Mounts,
) -> io::Result<Result<Vec<File>, InUse>> {
    let wanted = file.metadata()?;
    wait_for_passing_use(Some(&wanted), || try_exclude_others(file, identity, mounts))
}

fn try_exclude_others(
    file: &File,
    identity: Identity,
    mounts: Mounts,
) -> io::Result<Result<Vec<File>, InUse>> {
    let locked = taken(file, file.try_lock())?;
    Ok(match find_use(identity, mounts) {
        Some(by) => Err(by),
        None if !locked => Err(InUse::Locked),
        None => lock_backing_files(identity),
    })
}

/// Whether a process holds the exclusive lock.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    let free = taken(file, file.try_lock_shared())?;
    if free {
        file.unlock()?;
    }
    Ok(!free)
}

/// Whether an attempt to lock `file` was successful, or the lock is lent to this process.
fn taken(file: &File, attempt: Result<(), TryLockError>) -> io::Result<bool> {
    match attempt {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(is_lent(file)),
        Err(TryLockError::Error(error)) => Err(error),
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
        if !taken(&file, file.try_lock()).unwrap_or(true) {
            let then = Some(Box::new(InUse::Locked));
            return Err(InUse::Linked { link: Link::BackedBy, other: path, then });
        }
        locks.push(file);
        identity = beneath;
    }
    Ok(locks)
}
