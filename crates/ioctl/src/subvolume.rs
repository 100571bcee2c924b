//! Making and describing subvolumes.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use larder_format::Uuid;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use zerocopy::FromZeros;

use super::{MAGIC, invalid};

/// Bytes of a name with its end (`struct btrfs_ioctl_vol_args`, `struct btrfs_ioctl_vol_args_v2`).
const NAME_BYTES: usize = 4088;
const NAME_V2_BYTES: usize = 4040;

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; NAME_BYTES],
}

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; NAME_V2_BYTES],
}

/// `struct btrfs_ioctl_timespec`.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
struct Timespec {
    sec: u64,
    nsec: u32,
    _padding: u32,
}

/// `struct btrfs_ioctl_received_subvol_args`.
#[derive(FromZeros)]
#[repr(C)]
struct ReceivedArgs {
    uuid: [u8; 16],
    stransid: u64,
    rtransid: u64,
    stime: Timespec,
    rtime: Timespec,
    flags: u64,
    reserved: [u64; 16],
}

/// `struct btrfs_ioctl_get_subvol_info_args`.
#[derive(FromZeros)]
#[repr(C)]
struct InfoArgs {
    treeid: u64,
    name: [u8; 256],
    parent_id: u64,
    dirid: u64,
    generation: u64,
    flags: u64,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    received_uuid: [u8; 16],
    ctransid: u64,
    otransid: u64,
    stransid: u64,
    rtransid: u64,
    times: [Timespec; 4],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<VolArgs>() == 4096 && size_of::<VolArgsV2>() == 4096);
const _: () = assert!(size_of::<ReceivedArgs>() == 200 && size_of::<InfoArgs>() == 504);

/// `BTRFS_IOC_SUBVOL_CREATE`, `_SNAP_CREATE_V2`, `_SUBVOL_GETFLAGS`, `_SUBVOL_SETFLAGS`,
/// `_SET_RECEIVED_SUBVOL`, `_GET_SUBVOL_INFO`.
const SUBVOL_CREATE: Opcode = opcode::write::<VolArgs>(MAGIC, 14);
const SNAP_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 23);
const SUBVOL_GETFLAGS: Opcode = opcode::read::<u64>(MAGIC, 25);
const SUBVOL_SETFLAGS: Opcode = opcode::write::<u64>(MAGIC, 26);
const SET_RECEIVED_SUBVOL: Opcode = opcode::read_write::<ReceivedArgs>(MAGIC, 37);
const GET_SUBVOL_INFO: Opcode = opcode::read::<InfoArgs>(MAGIC, 60);

/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 2;

/// Makes an empty subvolume named `name` in `directory`.
pub fn create_subvolume(directory: impl AsFd, name: &[u8]) -> io::Result<()> {
    let argument = VolArgs { fd: 0, name: padded(name)? };
    // SAFETY: `VolArgs` has the layout that this request reads, and holds no pointers.
    Ok(unsafe { ioctl(directory, Setter::<SUBVOL_CREATE, _>::new(argument)) }?)
}

/// Takes a snapshot of the subvolume whose root is `source`, named `name` in `directory`.
pub fn create_snapshot(
    directory: impl AsFd,
    source: impl AsFd,
    name: &[u8],
    is_read_only: bool,
) -> io::Result<()> {
    let argument = VolArgsV2 {
        fd: i64::from(source.as_fd().as_raw_fd()),
        transid: 0,
        flags: if is_read_only { READ_ONLY } else { 0 },
        unused: [0; 4],
        name: padded(name)?,
    };
    // SAFETY: `VolArgsV2` has the layout that this request reads, with no flag that would have it read
    // `unused` as a pointer.
    Ok(unsafe { ioctl(directory, Setter::<SNAP_CREATE_V2, _>::new(argument)) }?)
}

/// Makes the subvolume whose root is `subvolume` read-only, or not.
pub fn set_read_only(subvolume: impl AsFd, is_read_only: bool) -> io::Result<()> {
    // SAFETY: the request fills a 64-bit number.
    let flags: u64 = unsafe { ioctl(subvolume.as_fd(), Getter::<SUBVOL_GETFLAGS, u64>::new()) }?;
    let flags = flags & !READ_ONLY | if is_read_only { READ_ONLY } else { 0 };
    // SAFETY: the request reads a 64-bit number.
    Ok(unsafe { ioctl(subvolume, Setter::<SUBVOL_SETFLAGS, u64>::new(flags)) }?)
}

/// Notes that a subvolume was received from the one with this uuid, as transaction `stransid` of that
/// file system left it.
pub fn set_received(subvolume: impl AsFd, uuid: Uuid, stransid: u64) -> io::Result<()> {
    let mut argument = ReceivedArgs::new_zeroed();
    (argument.uuid, argument.stransid) = (*uuid.as_bytes(), stransid);
    // SAFETY: `ReceivedArgs` has the layout that this request reads and writes, and no pointers; it holds
    // numbers only, of which every value is valid.
    Ok(unsafe { ioctl(subvolume, Updater::<SET_RECEIVED_SUBVOL, _>::new(&mut argument)) }?)
}

/// What a subvolume is known as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubvolumeInfo {
    /// Its id.
    pub id: u64,
    /// Its uuid; nil if it has none.
    pub uuid: Uuid,
    /// The transaction that last changed it.
    pub ctransid: u64,
    /// The uuid of the subvolume that it was received from; nil for none.
    pub received_uuid: Uuid,
    /// The transaction that had last changed that one.
    pub stransid: u64,
}

/// Describes the subvolume that `inside` lies in.
pub fn subvolume_info(inside: impl AsFd) -> io::Result<SubvolumeInfo> {
    // SAFETY: the request fills a `struct btrfs_ioctl_get_subvol_info_args`, whose layout `InfoArgs` has;
    // it holds numbers only, of which every value is valid.
    let info: InfoArgs = unsafe { ioctl(inside, Getter::<GET_SUBVOL_INFO, InfoArgs>::new()) }?;
    Ok(SubvolumeInfo {
        id: info.treeid,
        uuid: Uuid::from_bytes(info.uuid),
        ctransid: info.ctransid,
        received_uuid: Uuid::from_bytes(info.received_uuid),
        stransid: info.stransid,
    })
}

/// A name with zeros behind it.
fn padded<const LEN: usize>(name: &[u8]) -> io::Result<[u8; LEN]> {
    if name.is_empty() || name.len() >= LEN || name.contains(&0) {
        return Err(invalid("this is no name of a subvolume"));
    }
    let mut bytes = [0; LEN];
    bytes[..name.len()].copy_from_slice(name);
    Ok(bytes)
}
