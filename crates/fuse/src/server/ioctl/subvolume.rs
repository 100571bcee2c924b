//! Creating, deleting and marking subvolumes.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::{Inode, SnapshotKind, Subvolume, Timestamp, Uuid};
use larder_ioctl::abi::{
    ReceivedArgs, SUBVOL_RDONLY, SUBVOL_SPEC_BY_ID, Timespec, VolArgs, VolArgsV2,
};
use larder_ioctl::channel::Token;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::call::{Ioctl, text};
use crate::protocol::Notice;
use crate::server::access::{EXECUTE, WRITE};
use crate::server::call::{Call, Outcome, Refused, failed};
use crate::server::reach::Reach;

/// Type and permissions of a subvolume's root, before the umask.
const ROOT_MODE: u32 = 0o040_777;

pub(super) fn create(ioctl: &mut Ioctl<'_>) -> Outcome {
    let args: VolArgs = ioctl.input()?;
    create_named(ioctl, name(&args.name)?)
}

pub(super) fn create_v2(ioctl: &mut Ioctl<'_>) -> Outcome {
    let args: VolArgsV2 = ioctl.input()?;
    // There are no quotas to inherit.
    if args.flags != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    create_named(ioctl, name(&args.name)?)
}

fn create_named(ioctl: &Ioctl<'_>, name: &OsStr) -> Outcome {
    ioctl.check_writable()?;
    let directory = ioctl.node()?.directory()?;
    let caller = &ioctl.call.caller;
    // Ids that cannot be stored come first, as in the kernel.
    let root = ioctl.call.new_inode(ROOT_MODE, caller.thread.umask(), (0, 0))?;
    caller.check_access(&directory, WRITE | EXECUTE)?;
    directory.create_child_subvolume(name, &root).map_err(failed)?;
    ioctl.call.tell_of_name(ioctl.call.id, name);
    Ok(())
}

/// A snapshot. In place of a descriptor, the caller gives a token for the root of the subvolume.
pub(super) fn snapshot(ioctl: &mut Ioctl<'_>) -> Outcome {
    let args: VolArgsV2 = ioctl.input()?;
    let kind = match args.flags {
        0 => SnapshotKind::Writable,
        SUBVOL_RDONLY => SnapshotKind::ReadOnly,
        _ => return Err(Errno::OPNOTSUPP),
    };
    let name = name(&args.name)?;
    ioctl.check_writable()?;
    let directory = ioctl.node()?.directory()?;
    let [first, second, ..] = args.unused;
    let source = ioctl.server.channel.grants.redeem(Token { words: [first, second] });
    let root = source.ok_or(Errno::BADF)?.inode(ioctl.server)?;
    let source = root.clone().into_subvolume().map_err(failed)?;
    ioctl.call.caller.check_owner(&root)?;
    ioctl.call.caller.check_access(&directory, WRITE | EXECUTE)?;
    directory.snapshot_child(name, &source, kind).map_err(failed)?;
    ioctl.call.tell_of_name(ioctl.call.id, name);
    Ok(())
}

pub(super) fn delete(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_writable()?;
    let args: VolArgs = ioctl.input()?;
    delete_named(ioctl, &ioctl.node()?.inode, name(&args.name)?, None)
}

/// Deletes by name, or by the id of the subvolume: wherever in the file system it is for a caller
/// with `CAP_SYS_ADMIN`, and elsewhere below the directory that the ioctl was called on.
pub(super) fn delete_v2(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_writable()?;
    let args: VolArgsV2 = ioctl.input()?;
    match args.flags {
        0 => delete_named(ioctl, &ioctl.node()?.inode, name(&args.name)?, None),
        SUBVOL_SPEC_BY_ID => {
            let (id, _) = args.name.split_first_chunk().ok_or(Errno::INVAL)?;
            let id = u64::from_ne_bytes(*id);
            let info = ioctl.server.filesystem.subvolume_by_id(id).and_then(|found| found.info());
            let name = info.map_err(failed)?.name.ok_or(Errno::NOENT)?;
            let parent = ioctl.server.filesystem.subvolume_by_id(name.parent).map_err(failed)?;
            let directory = parent.inode(name.directory).map_err(failed)?;
            check_reaches(ioctl, &directory)?;
            delete_named(ioctl, &directory, OsStr::from_bytes(&name.name), Some(id))
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Refuses callers that may not use ids and could not walk to `directory` either.
fn check_reaches(ioctl: &Ioctl<'_>, directory: &Inode) -> Outcome {
    let caller = ioctl.call.caller;
    if caller.may(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    let mut reach = Reach::new(caller);
    reach.add(ioctl.node()?.directory()?);
    let is_reached = reach.searches(directory.clone().into_directory().map_err(failed)?)?;
    if is_reached { Ok(()) } else { Err(Errno::PERM) }
}

/// Deletes the subvolume `name` in `directory`, if it is `wanted`.
fn delete_named(
    ioctl: &Ioctl<'_>,
    directory: &Inode,
    name: &OsStr,
    wanted: Option<u64>,
) -> Outcome {
    let node = ioctl.server.nodes.id_of(directory);
    let directory = directory.clone().into_directory().map_err(failed)?;
    let caller = ioctl.call.caller;
    let deleted = Cell::new(0);
    // Users may rename in the directory meanwhile: the checks are about the one that goes.
    let may = |child: &Inode| {
        if wanted.is_some_and(|id| id != child.subvolume_id()) {
            return Err(Refused(Errno::NOENT));
        }
        if !caller.may(CapabilitySet::SYS_ADMIN) {
            if !ioctl.server.options.user_subvol_rm_allowed {
                return Err(Refused(Errno::PERM));
            }
            caller.check_access(child, WRITE | EXECUTE)?;
            // Without the capability it takes a subvolume that the caller could write to.
            if child.subvolume().info()?.is_read_only {
                return Err(Refused(Errno::ROFS));
            }
        }
        caller.check_may_remove(&directory, child)?;
        deleted.set(child.subvolume_id());
        Ok(())
    };
    directory.delete_child_subvolume_if(name, may)?;
    ioctl.call.tell_of_name(node, name);
    ioctl.server.pruning.note_deleted(deleted.get());
    Ok(())
}

pub(super) fn get_flags(ioctl: &mut Ioctl<'_>) -> Outcome {
    let is_read_only = subvolume_of(ioctl)?.info().map_err(failed)?.is_read_only;
    ioctl.output(&if is_read_only { SUBVOL_RDONLY } else { 0 })
}

pub(super) fn set_flags(ioctl: &mut Ioctl<'_>) -> Outcome {
    let subvolume = subvolume_of(ioctl)?;
    ioctl.call.caller.check_owner(&ioctl.node()?.inode)?;
    ioctl.check_writable()?;
    let flags: u64 = ioctl.input()?;
    if flags & !SUBVOL_RDONLY != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    subvolume.set_read_only(flags != 0).map_err(failed)
}

pub(super) fn set_received(ioctl: &mut Ioctl<'_>) -> Outcome {
    let args: ReceivedArgs = ioctl.input()?;
    let subvolume = subvolume_of(ioctl)?;
    ioctl.call.caller.check_owner(&ioctl.node()?.inode)?;
    ioctl.check_writable()?;
    let sent = Timestamp { seconds: args.stime.sec as i64, nanoseconds: args.stime.nsec };
    let uuid = Uuid::from_bytes(args.uuid);
    let (rtransid, received) = subvolume.set_received(uuid, args.stransid, sent).map_err(failed)?;
    ioctl.output(&ReceivedArgs { rtransid, rtime: timespec(received), ..args })
}

pub(super) fn set_default(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let id = match ioctl.input()? {
        // As for the kernel, 0 is the top level.
        0 => 5,
        id => id,
    };
    ioctl.server.filesystem.subvolume_by_id(id).map_err(failed)?;
    ioctl.server.filesystem.set_default_subvolume(id).map_err(failed)
}

/// The subvolume whose root the ioctl was called on.
fn subvolume_of(ioctl: &Ioctl<'_>) -> Result<Subvolume, Errno> {
    ioctl.node()?.inode.clone().into_subvolume().map_err(failed)
}

/// A time in the form of ioctls.
pub(super) fn timespec(time: Timestamp) -> Timespec {
    Timespec { sec: time.seconds as u64, nsec: time.nanoseconds, padding: 0 }
}

/// The name in a request, which is no path.
fn name(bytes: &[u8]) -> Result<&OsStr, Errno> {
    match text(bytes) {
        b"" => Err(Errno::INVAL),
        name => Ok(OsStr::from_bytes(name)),
    }
}

impl Call<'_> {
    /// Tells the kernel that `name` has changed in the directory that it knows as `node`.
    fn tell_of_name(&self, node: u64, name: &OsStr) {
        for notice in Notice::name_and_directory(node, name) {
            self.kernel.now_or_soon(notice);
        }
    }
}
