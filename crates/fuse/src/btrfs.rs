//! Requests and structures of btrfs's ioctls (linux/btrfs.h, linux/fs.h): those that FUSE passes on,
//! which are those of a fixed size without pointers and descriptors, and one of our own.

use rustix::ioctl::{Opcode, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a name in [`VolArgs`], with the zero at its end.
pub(crate) const NAME_BYTES: usize = 4088;
/// `BTRFS_SUBVOL_RDONLY`.
pub(crate) const SUBVOL_RDONLY: u64 = 1 << 1;

const MAGIC: u8 = 0x94;

/// `FS_IOC_GETFLAGS`.
pub(crate) const GETFLAGS: Opcode = opcode::read::<u64>(b'f', 1);
/// `FS_IOC_SETFLAGS`.
pub(crate) const SETFLAGS: Opcode = opcode::write::<u64>(b'f', 2);
/// `FS_IOC_GETVERSION`.
pub(crate) const GETVERSION: Opcode = opcode::read::<u64>(b'v', 1);
/// `FS_IOC_FSGETXATTR`.
pub(crate) const FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
pub(crate) const FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);
/// `FS_IOC_GETFSLABEL`.
pub(crate) const GET_FSLABEL: Opcode = opcode::read::<[u8; LABEL_BYTES]>(MAGIC, 49);
/// `FS_IOC_SETFSLABEL`.
pub(crate) const SET_FSLABEL: Opcode = opcode::write::<[u8; LABEL_BYTES]>(MAGIC, 50);
/// `BTRFS_IOC_SYNC`.
pub(crate) const SYNC: Opcode = opcode::none(MAGIC, 8);
/// `BTRFS_IOC_SUBVOL_CREATE`.
pub(crate) const SUBVOL_CREATE: Opcode = opcode::write::<VolArgs>(MAGIC, 14);
/// `BTRFS_IOC_SNAP_DESTROY`.
pub(crate) const SNAP_DESTROY: Opcode = opcode::write::<VolArgs>(MAGIC, 15);
/// `BTRFS_IOC_INO_LOOKUP`.
pub(crate) const INO_LOOKUP: Opcode = opcode::read_write::<InoLookupArgs>(MAGIC, 18);
/// `BTRFS_IOC_DEFAULT_SUBVOL`.
pub(crate) const DEFAULT_SUBVOL: Opcode = opcode::write::<u64>(MAGIC, 19);
/// `BTRFS_IOC_SNAP_CREATE_V2`.
pub(crate) const SNAP_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 23);
/// `BTRFS_IOC_SUBVOL_GETFLAGS`.
pub(crate) const SUBVOL_GETFLAGS: Opcode = opcode::read::<u64>(MAGIC, 25);
/// `BTRFS_IOC_SUBVOL_SETFLAGS`.
pub(crate) const SUBVOL_SETFLAGS: Opcode = opcode::write::<u64>(MAGIC, 26);
/// `BTRFS_IOC_DEV_INFO`.
pub(crate) const DEV_INFO: Opcode = opcode::read_write::<DevInfoArgs>(MAGIC, 30);
/// `BTRFS_IOC_FS_INFO`.
pub(crate) const FS_INFO: Opcode = opcode::read::<FsInfoArgs>(MAGIC, 31);
/// `BTRFS_IOC_GET_FEATURES`.
pub(crate) const GET_FEATURES: Opcode = opcode::read::<FeatureFlags>(MAGIC, 57);
/// Ours: a snapshot of a subvolume that is named by its id, since the descriptor that btrfs's own request
/// has means nothing to a server.
pub(crate) const SNAPSHOT_BY_ID: Opcode = opcode::write::<SnapshotArgs>(b'L', 1);

/// Bytes of a label with the zero at its end (`BTRFS_LABEL_SIZE`).
pub(crate) const LABEL_BYTES: usize = 256;
/// Bytes of a path in [`InoLookupArgs`] (`BTRFS_INO_LOOKUP_PATH_MAX`).
pub(crate) const LOOKUP_PATH_BYTES: usize = 4080;

/// `struct btrfs_ioctl_vol_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct VolArgs {
    pub(crate) fd: i64,
    pub(crate) name: [u8; NAME_BYTES],
}

/// `struct btrfs_ioctl_vol_args_v2`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct VolArgsV2 {
    pub(crate) fd: i64,
    pub(crate) transid: u64,
    pub(crate) flags: u64,
    pub(crate) unused: [u64; 4],
    pub(crate) name: [u8; 4040],
}

/// What [`SNAPSHOT_BY_ID`] takes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SnapshotArgs {
    /// The subvolume.
    pub(crate) source: u64,
    /// `BTRFS_SUBVOL_RDONLY` or nothing.
    pub(crate) flags: u64,
    pub(crate) name: [u8; 256],
}

/// `struct fsxattr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FsXattr {
    pub(crate) xflags: u32,
    pub(crate) extsize: u32,
    pub(crate) nextents: u32,
    pub(crate) projid: u32,
    pub(crate) cowextsize: u32,
    pub(crate) pad: [u8; 8],
}

/// `struct btrfs_ioctl_ino_lookup_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InoLookupArgs {
    pub(crate) treeid: u64,
    pub(crate) objectid: u64,
    pub(crate) name: [u8; LOOKUP_PATH_BYTES],
}

/// `struct btrfs_ioctl_dev_info_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DevInfoArgs {
    pub(crate) devid: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) bytes_used: u64,
    pub(crate) total_bytes: u64,
    pub(crate) unused: [u64; 379],
    pub(crate) path: [u8; 1024],
}

/// `struct btrfs_ioctl_fs_info_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FsInfoArgs {
    pub(crate) max_id: u64,
    pub(crate) num_devices: u64,
    pub(crate) fsid: [u8; 16],
    pub(crate) nodesize: u32,
    pub(crate) sectorsize: u32,
    pub(crate) clone_alignment: u32,
    pub(crate) csum_type: u16,
    pub(crate) csum_size: u16,
    pub(crate) flags: u64,
    pub(crate) generation: u64,
    pub(crate) metadata_uuid: [u8; 16],
    pub(crate) reserved: [u8; 944],
}

/// `struct btrfs_ioctl_feature_flags`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FeatureFlags {
    pub(crate) compat: u64,
    pub(crate) compat_ro: u64,
    pub(crate) incompat: u64,
}

const _: () = {
    assert!(size_of::<VolArgs>() == 4096);
    assert!(size_of::<VolArgsV2>() == 4096);
    assert!(size_of::<FsXattr>() == 28);
    assert!(size_of::<InoLookupArgs>() == 4096);
    assert!(size_of::<DevInfoArgs>() == 4096);
    assert!(size_of::<FsInfoArgs>() == 1024);
    assert!(size_of::<FeatureFlags>() == 24);
};
