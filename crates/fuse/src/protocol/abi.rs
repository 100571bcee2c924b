//! Structures and constants of linux/fuse.h, up to version 7.44, under their names there without
//! the prefix, in the byte order of the machine.

use bitflags::bitflags;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The major version of the protocol.
pub(crate) const VERSION: u32 = 7;
/// The minor version that replies follow.
pub(crate) const MINOR_VERSION: u32 = 44;
/// The oldest minor version that is served, that of Linux 5.4.
pub(crate) const OLDEST_MINOR_VERSION: u32 = 31;
/// The node that the kernel knows without a lookup.
pub(crate) const ROOT_ID: u64 = 1;

/// What a request asks for.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

bitflags! {
    /// What both sides can do (`FUSE_*` of INIT; bits from 32 on are in `flags2`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const DO_READDIRPLUS = 1 << 13;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
    }
}

bitflags! {
    /// What a SETATTR changes (`FATTR_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SetAttrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// `FUSE_WRITE_CACHE`: the kernel writes back its cache. If it caches writes, it sets the times
/// itself.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FOPEN_DIRECT_IO`: reads and writes bypass the page cache, and shared mappings are refused.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// `FOPEN_KEEP_CACHE`: the cached content of the file is still valid.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// `FOPEN_CACHE_DIR`: the kernel may cache a listing.
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// `FUSE_NOTIFY_INVAL_INODE`.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_PRUNE`, since Linux 6.18.
pub(crate) const NOTIFY_PRUNE: i32 = 9;
/// `FUSE_NOTIFY_INC_EPOCH`, since Linux 6.16: the kernel looks all names up again.
pub(crate) const NOTIFY_INC_EPOCH: i32 = 8;

/// `FUSE_IO_URING_CMD_REGISTER`.
pub(crate) const URING_CMD_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const URING_CMD_COMMIT_AND_FETCH: u32 = 2;

/// An id of a user or a group as the kernel and programs know it, which is not always the one that
/// is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(crate) struct ShownId(u32);

impl ShownId {
    pub(crate) const ROOT: Self = Self(0);
    /// Equals the id of no process. Programs see another one in its place.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// The id that a program or the kernel means by a number.
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Declares structures of the protocol: each with its name in the header and its size in bytes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $type),* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

structures! {
    /// `fuse_in_header`: the beginning of each request.
    InHeader: 40 { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: ShownId, gid: ShownId,
        pid: u32, total_extlen: u16, padding: u16 }
    /// `fuse_out_header`: the beginning of each reply and notification.
    OutHeader: 16 { len: u32, error: i32, unique: u64 }
    /// `fuse_attr`.
    Attr: 88 { ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: ShownId, gid: ShownId,
        rdev: u32, blksize: u32, flags: u32 }
    /// `fuse_entry_out`.
    EntryOut: 128 { nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr }
    /// `fuse_interrupt_in`.
    InterruptIn: 8 { unique: u64 }
    /// `fuse_attr_out`.
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// `fuse_sx_time`.
    SxTime: 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// `fuse_statx`.
    Statx: 256 { mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: ShownId, gid: ShownId,
        mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32,
        dev_minor: u32, spare2: [u64; 14] }
    /// `fuse_statx_out`.
    StatxOut: 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    /// `fuse_kstatfs`, all of `fuse_statfs_out`.
    StatfsOut: 80 { blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32,
        namelen: u32, frsize: u32, padding: u32, spare: [u32; 6] }
    /// `fuse_forget_in`.
    ForgetIn: 8 { nlookup: u64 }
    /// `fuse_forget_one`.
    ForgetOne: 16 { nodeid: u64, nlookup: u64 }
    /// `fuse_batch_forget_in`.
    BatchForgetIn: 8 { count: u32, dummy: u32 }
    /// `fuse_getattr_in`.
    GetattrIn: 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    /// `fuse_setattr_in`.
    SetattrIn: 88 { valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64,
        mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32,
        unused4: u32, uid: ShownId, gid: ShownId, unused5: u32 }
    /// `fuse_statx_in`.
    StatxIn: 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// `fuse_mknod_in`.
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// `fuse_mkdir_in`.
    MkdirIn: 8 { mode: u32, umask: u32 }
    /// `fuse_create_in`.
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// `fuse_open_in`.
    OpenIn: 8 { flags: u32, open_flags: u32 }
    /// `fuse_open_out`.
    OpenOut: 16 { fh: u64, open_flags: u32, padding: u32 }
    /// `fuse_rename_in`.
    RenameIn: 8 { newdir: u64 }
    /// `fuse_rename2_in`.
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32 }
    /// `fuse_link_in`.
    LinkIn: 8 { oldnodeid: u64 }
    /// `fuse_read_in`, of READ, READDIR and READDIRPLUS.
    ReadIn: 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32 }
    /// `fuse_write_in`.
    WriteIn: 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32 }
    /// `fuse_write_out`.
    WriteOut: 8 { size: u32, padding: u32 }
    /// `fuse_release_in`.
    ReleaseIn: 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// `fuse_fsync_in`.
    FsyncIn: 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// `fuse_setxattr_in`.
    SetxattrIn: 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// `fuse_getxattr_in`, also of LISTXATTR.
    GetxattrIn: 8 { size: u32, padding: u32 }
    /// `fuse_getxattr_out`.
    GetxattrOut: 8 { size: u32, padding: u32 }
    /// `fuse_init_in`.
    InitIn: 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32,
        unused: [u32; 11] }
    /// `fuse_init_out`.
    InitOut: 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, unused: [u32; 7] }
    /// `fuse_ioctl_in`.
    IoctlIn: 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// `fuse_ioctl_out`.
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// `fuse_fallocate_in`.
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// `fuse_lseek_in`.
    LseekIn: 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// `fuse_lseek_out`.
    LseekOut: 8 { offset: u64 }
    /// `fuse_copy_file_range_in`.
    CopyFileRangeIn: 56 { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64,
        len: u64, flags: u64 }
    /// `fuse_dirent`, without the name after it.
    Dirent: 24 { ino: u64, off: u64, namelen: u32, typ: u32 }
    /// `fuse_notify_inval_inode_out`.
    NotifyInvalInodeOut: 24 { ino: u64, off: i64, len: i64 }
    /// `fuse_notify_inval_entry_out`.
    NotifyInvalEntryOut: 16 { parent: u64, namelen: u32, flags: u32 }
    /// `fuse_notify_prune_out`, without the nodes after it.
    NotifyPruneOut: 16 { count: u32, padding: u32, spare: u64 }
    /// `fuse_uring_ent_in_out`.
    UringEntInOut: 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// `fuse_uring_req_header`: the header of a request or of its reply, the structure that a
    /// request of its kind begins with, and what the ring says of it.
    UringReqHeader: 288 { in_out: [u8; 128], op_in: [u8; 128], ring_ent_in_out: UringEntInOut }
    /// `fuse_uring_cmd_req`.
    UringCmdReq: 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

impl EntryOut {
    /// The answer to a lookup that finds nothing. The kernel may cache it.
    pub(crate) fn negative(valid_seconds: u64) -> Self {
        Self { entry_valid: valid_seconds, ..Self::new_zeroed() }
    }
}

impl UringReqHeader {
    /// The header of the request.
    pub(crate) fn in_header(&self) -> InHeader {
        let mut header = InHeader::new_zeroed();
        header.as_mut_bytes().copy_from_slice(&self.in_out[..size_of::<InHeader>()]);
        header
    }
}
