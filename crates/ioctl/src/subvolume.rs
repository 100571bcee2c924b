//! Making, marking and describing subvolumes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use larder_format::Uuid;
use rustix::fs::syncfs;
use zerocopy::{FromZeros, IntoBytes};

use crate::abi::{
    DEFAULT_SUBVOL, GET_SUBVOL_INFO, INO_LOOKUP, InoLookupArgs, ReceivedArgs, SET_RECEIVED_SUBVOL,
    SNAP_CREATE_V2, SNAP_DESTROY, SNAP_DESTROY_V2, SUBVOL_CREATE, SUBVOL_GETFLAGS, SUBVOL_RDONLY,
    SUBVOL_SETFLAGS, SUBVOL_SPEC_BY_ID, SubvolInfoArgs, VolArgs, VolArgsV2,
};
use crate::call;
use crate::channel::{self, Token};
use crate::invalid::invalid;

/// The number of a subvolume's root (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT_INODE: u64 = 256;
/// `BTRFS_ROOT_SUBVOL_RDONLY`, as a root item has it.
const ROOT_READ_ONLY: u64 = 1;

/// Makes an empty subvolume named `name` in `directory`.
pub fn create_subvolume(directory: impl AsFd, name: &[u8]) -> io::Result<()> {
    call::write::<SUBVOL_CREATE, _>(directory, VolArgs { fd: 0, name: padded(name)? })
}

/// Deletes the subvolume named `name` in `directory`.
pub fn delete_subvolume(directory: impl AsFd, name: &[u8]) -> io::Result<()> {
    call::write::<SNAP_DESTROY, _>(directory, VolArgs { fd: 0, name: padded(name)? })
}

/// Deletes the subvolume with this id in the file system that `inside` lies in.
pub fn delete_subvolume_by_id(inside: impl AsFd, id: u64) -> io::Result<()> {
    let mut args = VolArgsV2 { flags: SUBVOL_SPEC_BY_ID, ..VolArgsV2::new_zeroed() };
    args.name[..size_of::<u64>()].copy_from_slice(&id.to_ne_bytes());
    call::write::<SNAP_DESTROY_V2, _>(inside, args)
}

/// Takes a snapshot of the subvolume whose root is `source`, named `name` in `directory`. It
/// includes all earlier writes.
pub fn create_snapshot(
    directory: impl AsFd,
    source: impl AsFd,
    name: &[u8],
    is_read_only: bool,
) -> io::Result<()> {
    let flags = if is_read_only { SUBVOL_RDONLY } else { 0 };
    let mut args = VolArgsV2 { flags, name: padded(name)?, ..VolArgsV2::new_zeroed() };
    if call::is_kernel_btrfs(&source)? {
        args.fd = i64::from(source.as_fd().as_raw_fd());
        return call::write::<SNAP_CREATE_V2, _>(directory, args);
    }
    // Only roots have flags of subvolumes: the kernel takes no snapshot of other directories
    // either.
    call::read::<SUBVOL_GETFLAGS, u64>(&source)?;
    // Sends a FUSE server the kernel's dirty data.
    syncfs(&source)?;
    let Token { words } = channel::token(source)?;
    args.unused[..words.len()].copy_from_slice(&words);
    call::in_envelope(directory, SNAP_CREATE_V2, args.as_mut_bytes())
}

/// Id of the subvolume that `inside` lies in.
pub fn subvolume_id(inside: impl AsFd) -> io::Result<u64> {
    let mut args = InoLookupArgs { objectid: ROOT_INODE, ..InoLookupArgs::new_zeroed() };
    call::update::<INO_LOOKUP, _>(inside, &mut args)?;
    Ok(args.treeid)
}

/// Whether the subvolume whose root is `root` is read-only.
pub fn is_read_only(root: impl AsFd) -> io::Result<bool> {
    Ok(call::read::<SUBVOL_GETFLAGS, u64>(root)? & SUBVOL_RDONLY != 0)
}

/// Makes the subvolume whose root is `root` read-only, or not.
pub fn set_read_only(root: impl AsFd, is_read_only: bool) -> io::Result<()> {
    if is_read_only && !call::is_kernel_btrfs(&root)? {
        // Sends a FUSE server the kernel's dirty data first.
        syncfs(&root)?;
    }
    let flags = call::read::<SUBVOL_GETFLAGS, u64>(&root)? & !SUBVOL_RDONLY;
    let flag = if is_read_only { SUBVOL_RDONLY } else { 0 };
    call::write::<SUBVOL_SETFLAGS, u64>(root, flags | flag)
}

/// Makes the subvolume `id` the default one of the file system that `inside` lies in.
pub fn set_default_subvolume(inside: impl AsFd, id: u64) -> io::Result<()> {
    call::write::<DEFAULT_SUBVOL, u64>(inside, id)
}

/// Records that the subvolume whose root is `root` was received from the one with this uuid, as of
/// transaction `stransid` of that file system.
pub fn set_received(root: impl AsFd, uuid: Uuid, stransid: u64) -> io::Result<()> {
    let uuid = *uuid.as_bytes();
    let mut args = ReceivedArgs { uuid, stransid, ..ReceivedArgs::new_zeroed() };
    call::update::<SET_RECEIVED_SUBVOL, _>(root, &mut args)
}

/// The identity of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeInfo {
    /// Its id.
    pub id: u64,
    /// Its name; empty for the top level.
    pub name: Vec<u8>,
    /// Its uuid; nil if it has none.
    pub uuid: Uuid,
    /// The uuid of the subvolume that it is a snapshot of; nil for none.
    pub parent_uuid: Uuid,
    /// Whether it is read-only.
    pub is_read_only: bool,
    /// The transaction that last changed it.
    pub ctransid: u64,
    /// The uuid of the subvolume that it was received from; nil for none.
    pub received_uuid: Uuid,
    /// The transaction that had last changed that one.
    pub stransid: u64,
}

/// Describes the subvolume that `inside` lies in.
pub fn subvolume_info(inside: impl AsFd) -> io::Result<SubvolumeInfo> {
    let info: SubvolInfoArgs = call::read::<GET_SUBVOL_INFO, _>(inside)?;
    Ok(SubvolumeInfo {
        id: info.treeid,
        name: info.name.iter().copied().take_while(|byte| *byte != 0).collect(),
        uuid: Uuid::from_bytes(info.uuid),
        parent_uuid: Uuid::from_bytes(info.parent_uuid),
        is_read_only: info.flags & ROOT_READ_ONLY != 0,
        ctransid: info.ctransid,
        received_uuid: Uuid::from_bytes(info.received_uuid),
        stransid: info.stransid,
    })
}

/// A name padded with zeros.
fn padded<const LEN: usize>(name: &[u8]) -> io::Result<[u8; LEN]> {
    if name.is_empty() || name.len() >= LEN || name.contains(&0) {
        return Err(invalid("this is not a valid name of a subvolume"));
    }
    let mut bytes = [0; LEN];
    bytes[..name.len()].copy_from_slice(name);
    Ok(bytes)
}
