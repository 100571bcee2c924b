//! What a subvolume is, and which subvolumes lie in it.

use std::os::unix::ffi::OsStrExt;

use larder::{ItemType, Key};
use larder_ioctl::abi::{
    InoLookupUserArgs, MOST_ROOT_REFS, RootRefArgs, RootRefEntry, SubvolInfoArgs,
};
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::call::{Ioctl, padded};
use super::subvolume::timespec;
use crate::server::access::{EXECUTE, READ};
use crate::server::call::{Outcome, failed};

/// The tree that holds the roots of all others and the names of subvolumes.
const ROOT_TREE: u64 = 1;

/// Describes the subvolume that the ioctl was called in.
pub(super) fn info(ioctl: &mut Ioctl<'_>) -> Outcome {
    let info = ioctl.node()?.inode.subvolume().info().map_err(failed)?;
    if info.is_being_deleted {
        return Err(Errno::NOENT);
    }
    let mut args = SubvolInfoArgs {
        treeid: info.id,
        generation: info.generation,
        flags: info.flags,
        uuid: *info.uuid.as_bytes(),
        parent_uuid: *info.parent_uuid.as_bytes(),
        received_uuid: *info.received_uuid.as_bytes(),
        ctransid: info.change_generation,
        otransid: info.creation_generation,
        stransid: info.send_generation,
        rtransid: info.receive_generation,
        ctime: timespec(info.change_time),
        otime: timespec(info.creation_time),
        stime: timespec(info.send_time),
        rtime: timespec(info.receive_time),
        ..SubvolInfoArgs::new_zeroed()
    };
    if let Some(name) = info.name {
        (args.parent_id, args.dirid) = (name.parent, name.directory);
        args.name = padded(&name.name);
    }
    ioctl.output(&args)
}

/// The subvolumes that lie in the one that the ioctl was called in, from an id on.
pub(super) fn references(ioctl: &mut Ioctl<'_>) -> Outcome {
    let mut args: RootRefArgs = ioctl.input()?;
    let own = ioctl.node()?.inode.subvolume_id();
    let key = |id| Key::new(own, ItemType::ROOT_REF, id);
    let range = key(args.min_treeid)..=key(u64::MAX);
    let mut count = 0;
    args.rootref = FromZeros::new_zeroed();
    for item in ioctl.server.filesystem.tree_items(ROOT_TREE, range).map_err(failed)? {
        let item = item.map_err(failed)?;
        if count == MOST_ROOT_REFS {
            // The caller goes on from here.
            args.min_treeid = item.key().offset;
            ioctl.error = Some(Errno::OVERFLOW);
            break;
        }
        let dirid = item.data().first_chunk().ok_or(Errno::UCLEAN)?;
        let dirid = u64::from_le_bytes(*dirid);
        args.rootref[count] = RootRefEntry { treeid: item.key().offset, dirid };
        count += 1;
    }
    args.num_items = count as u8;
    ioctl.output(&args)
}

/// Name and path of a subvolume below the directory that the ioctl was called on, and in its
/// subvolume: for users who could walk there themselves.
pub(super) fn look_up(ioctl: &mut Ioctl<'_>) -> Outcome {
    let asked: InoLookupUserArgs = ioctl.input()?;
    let top = ioctl.node()?.directory()?;
    let subvolume = top.subvolume();
    let found = ioctl.server.filesystem.subvolume_by_id(asked.treeid).map_err(failed)?;
    let name = found.info().map_err(failed)?.name.ok_or(Errno::NOENT)?;
    if name.parent != subvolume.id() {
        return Err(Errno::NOENT);
    }
    if name.directory != asked.dirid {
        return Err(Errno::INVAL);
    }
    let mut names = Vec::new();
    let mut at = subvolume.inode(asked.dirid).map_err(failed)?;
    while at.number() != top.number() {
        if at.is_subvolume_root() {
            return Err(Errno::ACCESS);
        }
        let link = at.links().map_err(failed)?.into_iter().next().ok_or(Errno::NOENT)?;
        at = subvolume.inode(link.parent).map_err(failed)?;
        ioctl.call.caller.check_access(&at, READ | EXECUTE)?;
        names.push(link.name);
        // A hostile tree may contain a cycle.
        if names.len() > asked.path.len() {
            return Err(Errno::NAMETOOLONG);
        }
    }
    let path: Vec<u8> =
        names.iter().rev().flat_map(|name| [name.as_bytes(), b"/"].concat()).collect();
    if path.len() >= asked.path.len() {
        return Err(Errno::NAMETOOLONG);
    }
    ioctl.output(&InoLookupUserArgs { name: padded(&name.name), path: padded(&path), ..asked })
}
