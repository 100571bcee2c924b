//! What a caller may change with a command.
//!
//! # Invariants
//! - A command does no more than its caller could do through the mount, capability by capability.
//! - What a check saw is what changes. Only a check makes a [`Cleared`], without which nothing is
//!   applied, and which names the inodes that the check saw. Directories stay known by their paths
//!   until the command is applied.
//! - A file is copied that the caller could walk to, from a directory that the caller has open. Only
//!   the capability that opens any file by its handle allows any file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::commands::{Change, Checked, Command, Original};
use larder::{Directory, FileType, Inode};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::changes::Tree;
use crate::server::access::{Caller, EXECUTE, READ, WRITE};
use crate::server::call::{Outcome, failed};

const SET_GID: u64 = 0o2000;
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attribute that gives a program capabilities.
const OF_PROGRAMS: &[u8] = b"security.capability";
/// Namespaces of extended attributes that only root may change.
const OF_ROOT: [&[u8]; 2] = [b"security.", b"trusted."];
const OF_USERS: &[u8] = b"user.";

/// A change that its caller may make, to the inodes that were checked and no others.
pub(super) struct Cleared(Inodes);

enum Inodes {
    /// Nothing restricts the caller, or the change is to no inode that exists.
    Any,
    One(Inode),
    Moved {
        moved: Original,
        replaced: Option<Original>,
    },
}

impl Cleared {
    /// The inode that changes, if it exists already.
    pub(super) fn inode(&self) -> Option<&Inode> {
        match &self.0 {
            Inodes::One(inode) => Some(inode),
            _ => None,
        }
    }

    /// For those that apply changes.
    pub(super) fn checked(&self) -> Checked {
        match &self.0 {
            Inodes::Any => Checked::Anything,
            Inodes::One(inode) => Checked::Inode(original_of(inode)),
            Inodes::Moved { moved, replaced } => {
                Checked::Names { moved: *moved, replaced: *replaced }
            }
        }
    }
}

/// The name of an inode that no other gets.
pub(super) fn original_of(inode: &Inode) -> Original {
    Original { subvolume: inode.subvolume().id(), inode: inode.number() }
}

/// Refuses `change` if the caller may not do that. Fails with `ENOENT` if it is about an inode that
/// earlier commands make and that does not exist yet: what is there when they are applied may belong
/// to someone else.
pub(super) fn check(change: &Change<'_>, tree: &mut Tree<'_>) -> Result<Cleared, Errno> {
    let caller = tree.caller;
    let command = match change {
        _ if is_free(&caller) => {
            return Ok(Cleared(Inodes::Any));
        }
        Change::Copy { path, original } => {
            check_reads_original(*original, tree)?;
            let inode = tree.inode(path)?;
            if caller.may_everything() {
                caller.check_access(&inode, WRITE)?;
            } else {
                caller.check_owner(&inode)?;
            }
            return Ok(Cleared(Inodes::One(inode)));
        }
        Change::Command(command) | Change::On { command, .. } if caller.may_everything() => {
            return check_shown(command, tree).map(Cleared);
        }
        Change::Command(command) | Change::On { command, .. } => command,
    };
    let inodes = match *command {
        Command::Mkfile { path, .. }
        | Command::Mkdir { path, .. }
        | Command::Mkfifo { path, .. }
        | Command::Mksock { path, .. }
        | Command::Symlink { path, .. } => check_adds(&caller, tree, path)?,
        Command::Link { path, existing } => {
            let linked = tree.inode(existing)?;
            caller.check_owner(&linked)?;
            check_adds(&caller, tree, path)?;
            Inodes::One(linked)
        }
        Command::Mknod { path, .. } => {
            caller.check_may(CapabilitySet::MKNOD)?;
            check_adds(&caller, tree, path)?
        }
        Command::Unlink { path } | Command::Rmdir { path } => {
            Inodes::One(check_removes(&caller, tree, path)?)
        }
        Command::Rename { path, to } => check_renames(&caller, tree, path, to)?,
        _ => {
            let inode = tree.inode(command.path().ok_or(Errno::PERM)?)?;
            check_changes(&caller, command, &inode)?;
            Inodes::One(inode)
        }
    };
    Ok(Cleared(inodes))
}

/// Whether no check restricts the caller.
pub(super) fn is_free(caller: &Caller<'_>) -> bool {
    caller.may_everything() && caller.owners().is_empty()
}

/// Refuses a change to `inode`.
fn check_changes(caller: &Caller<'_>, command: &Command<'_>, inode: &Inode) -> Outcome {
    let may_with = |capability| {
        if caller.may_with(&inode.metadata(), capability) { Ok(()) } else { Err(Errno::PERM) }
    };
    match *command {
        // An owner gives a file to a group of its own. CAP_FOWNER does not stand for that.
        Command::Chown { uid, gid, .. } => {
            let metadata = inode.metadata();
            let keeps_owner = metadata.uid == uid as u32;
            let keeps_group = metadata.gid == gid as u32;
            let may_give = keeps_group || caller.is_in_group(gid as u32);
            let is_own = caller.owns(&metadata) && keeps_owner && may_give;
            if is_own { Ok(()) } else { may_with(CapabilitySet::CHOWN) }
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

/// The mode that the caller's chmod(2) of `inode` sets: without setgid, unless the caller is in its
/// group.
pub(super) fn mode_set(mode: u64, inode: &Inode, caller: &Caller<'_>) -> u64 {
    if mode & SET_GID == 0 || caller.keeps_set_gid_of(inode) { mode } else { mode & !SET_GID }
}

/// Whether `command` takes setgid from an inode of which the caller is no member, as setting a mode
/// or an ACL does for callers without `CAP_FSETID`, and a new owner for a file.
pub(super) fn takes_set_gid(command: &Command<'_>, inode: &Inode, caller: &Caller<'_>) -> bool {
    let may_take = match *command {
        Command::Chown { .. } => inode.file_type() != FileType::Directory,
        Command::SetXattr { name, .. } => name == ACCESS_ACL,
        _ => false,
    };
    let has_set_gid = u64::from(inode.metadata().mode) & SET_GID != 0;
    may_take && has_set_gid && !caller.keeps_set_gid_of(inode)
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
fn check_shown(command: &Command<'_>, tree: &mut Tree<'_>) -> Result<Inodes, Errno> {
    let caller = tree.caller;
    match *command {
        Command::Mkfile { path, .. }
        | Command::Mkdir { path, .. }
        | Command::Mknod { path, .. }
        | Command::Mkfifo { path, .. }
        | Command::Mksock { path, .. }
        | Command::Symlink { path, .. }
        | Command::Link { path, .. } => check_adds(&caller, tree, path),
        Command::Unlink { path } | Command::Rmdir { path } => {
            check_removes(&caller, tree, path).map(Inodes::One)
        }
        Command::Rename { path, to } => check_renames(&caller, tree, path, to),
        // Root gives them an owner.
        Command::Chown { .. } => Ok(Inodes::Any),
        Command::Clone { .. } => Err(Errno::PERM),
        _ => {
            // What earlier commands have yet to make will be the caller's.
            let Some(Ok(inode)) = command.path().map(|path| tree.inode(path)) else {
                return Ok(Inodes::Any);
            };
            caller.check_access(&inode, WRITE)?;
            Ok(Inodes::One(inode))
        }
    }
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

fn check_adds(caller: &Caller<'_>, tree: &mut Tree<'_>, path: &[u8]) -> Result<Inodes, Errno> {
    let (directory, _) = tree.parent_and_name(path)?;
    caller.check_access(&directory, WRITE | EXECUTE)?;
    Ok(Inodes::Any)
}

/// Returns the inode that loses the name.
fn check_removes(caller: &Caller<'_>, tree: &mut Tree<'_>, path: &[u8]) -> Result<Inode, Errno> {
    let (directory, name) = tree.parent_and_name(path)?;
    let child = directory.child(OsStr::from_bytes(name)).map_err(failed)?;
    caller.check_may_remove(&directory, &child)?;
    Ok(child)
}

fn check_renames(
    caller: &Caller<'_>,
    tree: &mut Tree<'_>,
    path: &[u8],
    to: &[u8],
) -> Result<Inodes, Errno> {
    let inode = check_removes(caller, tree, path)?;
    let moved = original_of(&inode);
    check_adds(caller, tree, to)?;
    let above = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at);
    if inode.file_type() == FileType::Directory && path[..above(path)] != to[..above(to)] {
        // The directory above it is one of its entries.
        caller.check_access(&inode, WRITE)?;
    }
    let replaced = match check_removes(caller, tree, to) {
        Err(Errno::NOENT) => None,
        found => Some(original_of(&found?)),
    };
    Ok(Inodes::Moved { moved, replaced })
}
