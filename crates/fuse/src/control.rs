//! Asking a mounted file system for what no system call asks: the same requests mean the same on a mount
//! of larder's and on one of the kernel's btrfs.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{fstatfs, syncfs};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl};
use zerocopy::{FromZeros, IntoBytes};

use crate::btrfs::{
    DEFAULT_SUBVOL, INO_LOOKUP, InoLookupArgs, SNAP_CREATE_V2, SNAP_DESTROY, SNAPSHOT_BY_ID,
    SUBVOL_CREATE, SUBVOL_GETFLAGS, SUBVOL_RDONLY, SUBVOL_SETFLAGS, SnapshotArgs, VolArgs,
    VolArgsV2,
};

/// What `statfs` returns as the type of the kernel's btrfs (`BTRFS_SUPER_MAGIC`).
const BTRFS_SUPER_MAGIC: i64 = 0x9123_683E;
/// The number of a subvolume's root (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT_INODE: u64 = 256;

/// Makes an empty subvolume named `name` in the open `directory`.
pub fn create_subvolume(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    set::<SUBVOL_CREATE, _>(directory, VolArgs { fd: 0, name: padded(name)? })
}

/// Deletes the subvolume named `name` in the open `directory`.
pub fn delete_subvolume(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    set::<SNAP_DESTROY, _>(directory, VolArgs { fd: 0, name: padded(name)? })
}

/// Takes a snapshot of the subvolume whose root is open as `source`, named `name` in the open
/// `directory`. It has all that was written before.
pub fn snapshot(
    source: impl AsFd,
    directory: impl AsFd,
    name: &OsStr,
    is_read_only: bool,
) -> io::Result<()> {
    let flags = if is_read_only { SUBVOL_RDONLY } else { 0 };
    if fstatfs(&source)?.f_type as i64 == BTRFS_SUPER_MAGIC {
        let fd = source.as_fd().as_raw_fd().into();
        let args = VolArgsV2 { fd, flags, name: padded(name)?, ..VolArgsV2::new_zeroed() };
        return set::<SNAP_CREATE_V2, _>(directory, args);
    }
    // What the kernel keeps for a server reaches it with this.
    syncfs(&source)?;
    let source = subvolume_id(source)?;
    set::<SNAPSHOT_BY_ID, _>(directory, SnapshotArgs { source, flags, name: padded(name)? })
}

/// Id of the subvolume that what is open as `inode` belongs to.
pub fn subvolume_id(inode: impl AsFd) -> io::Result<u64> {
    let mut args = InoLookupArgs { objectid: ROOT_INODE, ..InoLookupArgs::new_zeroed() };
    // SAFETY: the request reads and fills a `struct btrfs_ioctl_ino_lookup_args`, which the type matches
    // in layout and size; every bit pattern is valid for it.
    unsafe { ioctl(inode, Updater::<INO_LOOKUP, InoLookupArgs>::new(&mut args)) }?;
    Ok(args.treeid)
}

/// Whether the subvolume whose root is open as `root` is read-only.
pub fn is_read_only(root: impl AsFd) -> io::Result<bool> {
    // SAFETY: the request fills 64 bits.
    let flags: u64 = unsafe { ioctl(root, Getter::<SUBVOL_GETFLAGS, u64>::new()) }?;
    Ok(flags & SUBVOL_RDONLY != 0)
}

/// Makes the subvolume whose root is open as `root` read-only, or not.
pub fn set_read_only(root: impl AsFd, is_read_only: bool) -> io::Result<()> {
    syncfs(&root)?;
    set::<SUBVOL_SETFLAGS, u64>(root, if is_read_only { SUBVOL_RDONLY } else { 0 })
}

/// Makes the subvolume `id` the default one of the file system in which `directory` is open.
pub fn set_default_subvolume(directory: impl AsFd, id: u64) -> io::Result<()> {
    set::<DEFAULT_SUBVOL, u64>(directory, id)
}

fn set<const REQUEST: Opcode, T>(inode: impl AsFd, args: T) -> io::Result<()> {
    // SAFETY: each request that this is called with reads a `T`, by whose size its number is made, and
    // writes nothing.
    Ok(unsafe { ioctl(inode, Setter::<REQUEST, T>::new(args)) }?)
}

/// A name with zeros behind it.
fn padded<const LEN: usize>(name: &OsStr) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    let name = name.as_bytes();
    if name.len() >= LEN {
        return Err(Errno::NAMETOOLONG.into());
    }
    bytes.as_mut_bytes()[..name.len()].copy_from_slice(name);
    Ok(bytes)
}
