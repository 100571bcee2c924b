//! The numbers of the requests: those of `linux/btrfs.h` and `linux/fs.h`, and six of Larder's
//! own.
//!
//! A request's number holds the size of its structure, which tells FUSE how many bytes to pass on.

mod structures;

use rustix::ioctl::{Opcode, opcode};

use crate::channel::{ChannelInfo, Token};

pub use structures::*;

/// `BTRFS_IOCTL_MAGIC`.
const MAGIC: u8 = 0x94;

/// `FS_IOC_GETFLAGS`.
pub const GETFLAGS: Opcode = opcode::read::<u64>(b'f', 1);
/// `FS_IOC_SETFLAGS`.
pub const SETFLAGS: Opcode = opcode::write::<u64>(b'f', 2);
/// `FS_IOC_FIEMAP`, whose structure is followed by an array.
pub const FIEMAP: Opcode = opcode::read_write::<Fiemap>(b'f', 11);
/// `FS_IOC_GETVERSION`.
pub const GETVERSION: Opcode = opcode::read::<u64>(b'v', 1);
/// `FS_IOC_FSGETXATTR`.
pub const FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
pub const FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);
/// `FS_IOC_GETFSLABEL`.
pub const GET_FSLABEL: Opcode = opcode::read::<[u8; LABEL_BYTES]>(MAGIC, 49);
/// `FS_IOC_SETFSLABEL`.
pub const SET_FSLABEL: Opcode = opcode::write::<[u8; LABEL_BYTES]>(MAGIC, 50);
/// `BTRFS_IOC_SYNC`.
pub const SYNC: Opcode = opcode::none(MAGIC, 8);
/// `BTRFS_IOC_START_SYNC`.
pub const START_SYNC: Opcode = opcode::read::<u64>(MAGIC, 24);
/// `BTRFS_IOC_WAIT_SYNC`.
pub const WAIT_SYNC: Opcode = opcode::write::<u64>(MAGIC, 22);
/// `FICLONERANGE`, which is `BTRFS_IOC_CLONE_RANGE`.
pub const CLONE_RANGE: Opcode = opcode::write::<CloneRange>(MAGIC, 13);
/// `BTRFS_IOC_SEND`, whose structure has a pointer.
pub const SEND: Opcode = opcode::write::<[u8; 72]>(MAGIC, 38);
/// `BTRFS_IOC_ENCODED_WRITE`, whose structure has pointers.
pub const ENCODED_WRITE: Opcode = opcode::write::<[u8; 128]>(MAGIC, 64);
/// `BTRFS_IOC_SCAN_DEV`.
pub const SCAN_DEV: Opcode = opcode::write::<VolArgs>(MAGIC, 4);
/// `BTRFS_IOC_FORGET_DEV`.
pub const FORGET_DEV: Opcode = opcode::write::<VolArgs>(MAGIC, 5);
/// `BTRFS_IOC_DEVICES_READY`, which answers with a number in place of an error.
pub const DEVICES_READY: Opcode = opcode::read::<VolArgs>(MAGIC, 39);
/// `BTRFS_IOC_RESIZE`, whose name is `DEVID:SIZE`.
pub const RESIZE: Opcode = opcode::write::<VolArgs>(MAGIC, 3);
/// `BTRFS_IOC_ADD_DEV`.
pub const ADD_DEV: Opcode = opcode::write::<VolArgs>(MAGIC, 10);
/// `BTRFS_IOC_RM_DEV_V2`.
pub const RM_DEV_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 58);
/// `BTRFS_IOC_DEV_REPLACE`.
pub const DEV_REPLACE: Opcode = opcode::read_write::<ReplaceArgs>(MAGIC, 53);
/// `BTRFS_IOCTL_DEV_REPLACE_CMD_START`.
pub const REPLACE_START: u64 = 0;
/// `BTRFS_IOCTL_DEV_REPLACE_CMD_STATUS`.
pub const REPLACE_STATUS: u64 = 1;
/// `BTRFS_IOCTL_DEV_REPLACE_CMD_CANCEL`.
pub const REPLACE_CANCEL: u64 = 2;
/// `BTRFS_IOCTL_DEV_REPLACE_RESULT_NOT_STARTED`.
pub const REPLACE_NOT_STARTED: u64 = 1;
/// `BTRFS_IOCTL_DEV_REPLACE_RESULT_ALREADY_STARTED`.
pub const REPLACE_ALREADY_STARTED: u64 = 2;
/// `BTRFS_IOCTL_DEV_REPLACE_RESULT_SCRUB_INPROGRESS`.
pub const REPLACE_SCRUB_IN_PROGRESS: u64 = 3;
/// `BTRFS_IOC_SUBVOL_CREATE`.
pub const SUBVOL_CREATE: Opcode = opcode::write::<VolArgs>(MAGIC, 14);
/// `BTRFS_IOC_SUBVOL_CREATE_V2`.
pub const SUBVOL_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 24);
/// `BTRFS_IOC_SNAP_DESTROY`.
pub const SNAP_DESTROY: Opcode = opcode::write::<VolArgs>(MAGIC, 15);
/// `BTRFS_IOC_SNAP_DESTROY_V2`.
pub const SNAP_DESTROY_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 63);
/// `BTRFS_IOC_SNAP_CREATE_V2`.
pub const SNAP_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 23);
/// `BTRFS_IOC_SUBVOL_GETFLAGS`.
pub const SUBVOL_GETFLAGS: Opcode = opcode::read::<u64>(MAGIC, 25);
/// `BTRFS_IOC_SUBVOL_SETFLAGS`.
pub const SUBVOL_SETFLAGS: Opcode = opcode::write::<u64>(MAGIC, 26);
/// `BTRFS_IOC_DEFAULT_SUBVOL`.
pub const DEFAULT_SUBVOL: Opcode = opcode::write::<u64>(MAGIC, 19);
/// `BTRFS_IOC_SET_RECEIVED_SUBVOL`.
pub const SET_RECEIVED_SUBVOL: Opcode = opcode::read_write::<ReceivedArgs>(MAGIC, 37);
/// `BTRFS_IOC_GET_SUBVOL_INFO`.
pub const GET_SUBVOL_INFO: Opcode = opcode::read::<SubvolInfoArgs>(MAGIC, 60);
/// `BTRFS_IOC_GET_SUBVOL_ROOTREF`.
pub const GET_SUBVOL_ROOTREF: Opcode = opcode::read_write::<RootRefArgs>(MAGIC, 61);
/// `BTRFS_IOC_INO_LOOKUP`.
pub const INO_LOOKUP: Opcode = opcode::read_write::<InoLookupArgs>(MAGIC, 18);
/// `BTRFS_IOC_INO_LOOKUP_USER`.
pub const INO_LOOKUP_USER: Opcode = opcode::read_write::<InoLookupUserArgs>(MAGIC, 62);
/// `BTRFS_IOC_INO_PATHS`, whose structure points to a container.
pub const INO_PATHS: Opcode = opcode::read_write::<InoPathArgs>(MAGIC, 35);
/// `BTRFS_IOC_LOGICAL_INO`, whose structure points to a container.
pub const LOGICAL_INO: Opcode = opcode::read_write::<LogicalInoArgs>(MAGIC, 36);
/// `BTRFS_IOC_LOGICAL_INO_V2`, whose structure points to a container.
pub const LOGICAL_INO_V2: Opcode = opcode::read_write::<LogicalInoArgs>(MAGIC, 59);
/// `BTRFS_IOC_TREE_SEARCH`.
pub const TREE_SEARCH: Opcode = opcode::read_write::<SearchArgs>(MAGIC, 17);
/// `BTRFS_IOC_TREE_SEARCH_V2`, whose structure is followed by a buffer.
pub const TREE_SEARCH_V2: Opcode = opcode::read_write::<SearchArgsV2>(MAGIC, 17);
/// `BTRFS_IOC_SPACE_INFO`, whose structure is followed by an array.
pub const SPACE_INFO: Opcode = opcode::read_write::<SpaceArgs>(MAGIC, 20);
/// `BTRFS_IOC_DEV_INFO`.
pub const DEV_INFO: Opcode = opcode::read_write::<DevInfoArgs>(MAGIC, 30);
/// `BTRFS_IOC_FS_INFO`.
pub const FS_INFO: Opcode = opcode::read::<FsInfoArgs>(MAGIC, 31);
/// `BTRFS_IOC_GET_FEATURES`.
pub const GET_FEATURES: Opcode = opcode::read::<FeatureFlags>(MAGIC, 57);

/// `BTRFS_IOC_GET_DEV_STATS`.
pub const GET_DEV_STATS: Opcode = opcode::read_write::<DevStatsArgs>(MAGIC, 52);

/// `BTRFS_IOC_SCRUB`.
pub const SCRUB: Opcode = opcode::read_write::<ScrubArgs>(MAGIC, 27);
/// `BTRFS_IOC_SCRUB_CANCEL`.
pub const SCRUB_CANCEL: Opcode = opcode::none(MAGIC, 28);
/// `BTRFS_IOC_SCRUB_PROGRESS`.
pub const SCRUB_PROGRESS: Opcode = opcode::read_write::<ScrubArgs>(MAGIC, 29);
/// `BTRFS_IOC_BALANCE_V2`.
pub const BALANCE_V2: Opcode = opcode::read_write::<BalanceArgs>(MAGIC, 32);
/// `BTRFS_IOC_BALANCE_CTL`. The kernel takes the number itself in place of a pointer to it. FUSE
/// does not pass that on, so that it comes in an [`Envelope`], which has the number.
pub const BALANCE_CTL: Opcode = opcode::write::<i32>(MAGIC, 33);
/// `BTRFS_IOC_BALANCE_PROGRESS`.
pub const BALANCE_PROGRESS: Opcode = opcode::read::<BalanceArgs>(MAGIC, 34);

/// Larder's own, for requests that FUSE cannot pass on: a request in an [`Envelope`].
pub const IN_ENVELOPE: Opcode = opcode::read_write::<Envelope>(b'L', 1);
/// Larder's own: the address of the server's socket, for requests that need more than one message
/// and one answer.
pub const CHANNEL: Opcode = opcode::read::<ChannelInfo>(b'L', 2);

/// Larder's own: the health of the mount.
pub const HEALTH: Opcode = opcode::read::<HealthArgs>(b'L', 3);

/// Larder's own: the metrics of the mount.
pub const METRICS: Opcode = opcode::read::<MetricsArgs>(b'L', 5);

/// Larder's own: how fast a device is scrubbed.
pub const SCRUB_LIMIT: Opcode = opcode::read_write::<ScrubLimitArgs>(b'L', 6);
/// Larder's own: gives block groups the copies that they lack.
pub const COMPLETE: Opcode = opcode::none(b'L', 16);

/// Larder's own: a token for the inode that the request is called on.
pub const TOKEN: Opcode = opcode::read::<Token>(b'L', 4);

/// The size of the structure that a request is defined for, from its number.
pub(crate) const fn structure_bytes(request: Opcode) -> usize {
    (request >> 16 & 0x3FFF) as usize
}
