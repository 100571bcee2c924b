//! What a caller may change with a command.
//!
//! # Invariants
//! - A command does no more than its caller could do through the mount, capability by capability.
//! - What a check saw is what changes: the inode is returned, and directories stay known by their
//!   paths until the command is applied.
//! - A file is copied that the caller could walk to, from a directory that the caller has open. Only
//!   the capability that opens any file by its handle allows any file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::commands::{Change, Command, Original};
use larder::{Directory, Inode};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::changes::Tree;
use crate::server::access::{Caller, EXECUTE, READ, WRITE};
use crate::server::call::{Outcome, failed};

const SET_GID: u64 = 0o2000;
/// The attribute that gives a program capabilities.
const OF_PROGRAMS: &[u8] = b"security.capability";
/// Namespaces of extended attributes that only root may change.
const OF_ROOT: [&[u8]; 2] = [b"security.", b"trusted."];
const OF_USERS: &[u8] = b"user.";

/// Refuses `change` if the caller may not do that. Fails with `ENOENT` if it is about an inode that
/// earlier commands make and that does not exist yet: what is there when they are applied may belong
/// to someone else. Returns the inode that was checked, if the change is to one that exists.
pub(super) fn check(change: &Change<'_>, tree: &mut Tree<'_>) -> Result<Option<Inode>, Errno> {
    let caller = tree.caller;
    let command = match change {
        _ if caller.may_everything() && caller.owners().is_empty() => return Ok(None),
        Change::Copy { path, original } => {
            check_reads_original(*original, tree)?;
            let inode = tree.inode(path)?;
            if caller.may_everything() {
                caller.check_access(&inode, WRITE)?;
            } else {
                caller.check_owner(&inode)?;
            }
            return Ok(Some(inode));
        }
        Change::Command(command) | Change::On { command, .. } if caller.may_everything() => {
            return check_shown(command, tree);
        }
        Change::Command(command) | Change::On { command, .. } => command,
    };
    match *command {
        Command::Mkfile { path, .. }
        | Command::Mkdir { path, .. }
        | Command::Mkfifo { path, .. }
        | Command::Mksock { path, .. }
        | Command::Symlink { path, .. } => check_adds(&caller, tree, path)?,
        Command::Link { path, existing } => {
            caller.check_owner(&tree.inode(existing)?)?;
            check_adds(&caller, tree, path)?;
        }
        Command::Mknod { path, .. } => {
            caller.check_may(CapabilitySet::MKNOD)?;
            check_adds(&caller, tree, path)?;
        }
        Command::Unlink { path } | Command::Rmdir { path } => check_removes(&caller, tree, path)?,
        Command::Rename { path, to } => {
            check_removes(&caller, tree, path)?;
            check_adds(&caller, tree, to)?;
            if tree.inode(to).is_ok() {
                check_removes(&caller, tree, to)?;
            }
        }
        _ => {
            let inode = tree.inode(command.path().ok_or(Errno::PERM)?)?;
            check_changes(&caller, command, &inode)?;
            return Ok(Some(inode));
        }
    }
    Ok(None)
}

/// Refuses a change to `inode`.
fn check_changes(caller: &Caller<'_>, command: &Command<'_>, inode: &Inode) -> Outcome {
    let may_with = |capability| {
        if caller.may_with(&inode.metadata(), capability) { Ok(()) } else { Err(Errno::PERM) }
    };
    match *command {
        Command::Chown { uid, gid, .. } => {
            let stays = inode.metadata().uid == uid as u32;
            let is_own =
                caller.check_owner(inode).is_ok() && stays && caller.is_in_group(gid as u32);
            if is_own { Ok(()) } else { may_with(CapabilitySet::CHOWN) }
        }
        Command::Chmod { mode, .. } if mode & SET_GID != 0 => {
            caller.check_owner(inode)?;
            if caller.keeps_set_gid_of(inode) { Ok(()) } else { Err(Errno::PERM) }
        }
        Command::SetXattr { name, .. } | Command::RemoveXattr { name, .. }
            if name == OF_PROGRAMS =>
        {
            may_with(CapabilitySet::SETFCAP)
        }
        Command::SetXattr { name, .. } | Command::RemoveXattr { name, .. }
            if OF_ROOT.iter().any(|space| name.starts_with(space)) =>
        {
            may_with(CapabilitySet::SYS_ADMIN)
        }
        Command::SetXattr { name, .. } | Command::RemoveXattr { name, .. }
            if name.starts_with(OF_USERS) =>
        {
            caller.check_access(inode, WRITE)
        }
        // A program that creates a file may write to it whatever its mode, and an owner can change
        // the mode. Writing to a file of another user would have to take its setuid bit.
        Command::Chmod { .. }
        | Command::Utimes { .. }
        | Command::SetXattr { .. }
        | Command::RemoveXattr { .. }
        | Command::Write { .. }
        | Command::Truncate { .. }
        | Command::Fallocate { .. } => caller.check_owner(inode),
        // Flags, extents as they are stored, and sources that have a uuid.
        _ => Err(Errno::PERM),
    }
}

/// Refuses a copy of a file that the caller could not open for reading.
fn check_reads_original(original: Original, tree: &mut Tree<'_>) -> Outcome {
    let Original { subvolume, inode } = original;
    let subvolume = tree.server.filesystem.subvolume_by_id(subvolume).map_err(failed)?;
    let inode = subvolume.inode(inode).map_err(failed)?;
    tree.caller.check_access(&inode, READ)?;
    let is_reached =
        tree.caller.may(CapabilitySet::DAC_READ_SEARCH) || tree.reaches_original(&inode)?;
    if is_reached { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Refuses what root may not do with inodes whose owner or group is not shown.
fn check_shown(command: &Command<'_>, tree: &mut Tree<'_>) -> Result<Option<Inode>, Errno> {
    let caller = tree.caller;
    match *command {
        Command::Mkfile { path, .. }
        | Command::Mkdir { path, .. }
        | Command::Mknod { path, .. }
        | Command::Mkfifo { path, .. }
        | Command::Mksock { path, .. }
        | Command::Symlink { path, .. }
        | Command::Link { path, .. } => check_adds(&caller, tree, path)?,
        Command::Unlink { path } | Command::Rmdir { path } => check_removes(&caller, tree, path)?,
        Command::Rename { path, to } => {
            check_removes(&caller, tree, path)?;
            check_adds(&caller, tree, to)?;
        }
        // Root gives them an owner.
        Command::Chown { .. } => {}
        Command::Clone { .. } => return Err(Errno::PERM),
        _ => {
            // What earlier commands have yet to make will be the caller's.
            if let Some(Ok(inode)) = command.path().map(|path| tree.inode(path)) {
                caller.check_access(&inode, WRITE)?;
                return Ok(Some(inode));
            }
        }
    }
    Ok(None)
}

/// Whether the caller, as any user, may do that with a new inode of their own.
pub(super) fn any_owner_may(change: &Change<'_>, tree: &mut Tree<'_>) -> bool {
    let command = match change {
        Change::Copy { original, .. } => return check_reads_original(*original, tree).is_ok(),
        Change::Command(command) => command,
        Change::On { .. } => return false,
    };
    match *command {
        Command::Chmod { mode, .. } => mode & SET_GID == 0,
        Command::SetXattr { name, .. } => name.starts_with(OF_USERS),
        Command::Utimes { .. } | Command::Write { .. } | Command::Truncate { .. } => true,
        _ => false,
    }
}

/// Refuses to walk through a directory without the permission to search it.
pub(super) fn check_searches(caller: &Caller<'_>, directory: &Directory) -> Outcome {
    caller.check_access(directory, EXECUTE)
}

fn check_adds(caller: &Caller<'_>, tree: &mut Tree<'_>, path: &[u8]) -> Outcome {
    let (directory, _) = tree.parent_and_name(path)?;
    caller.check_access(&directory, WRITE | EXECUTE)
}

fn check_removes(caller: &Caller<'_>, tree: &mut Tree<'_>, path: &[u8]) -> Outcome {
    let (directory, name) = tree.parent_and_name(path)?;
    let child = directory.child(OsStr::from_bytes(name)).map_err(failed)?;
    caller.check_may_remove(&directory, &child)
}
