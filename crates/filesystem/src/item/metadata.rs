//! Attributes, decoded.

use std::time::{Duration, SystemTime};

use larder_format::item::{self, InodeFlags, InodeItem, Timespec};
use larder_format::{FormatError, read_exact_item};

use crate::error::Result;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory, also the root of a subvolume.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// The type in the type bits of a mode.
    pub fn from_mode(mode: u32) -> Option<Self> {
        item::FileType::from_mode(mode).and_then(Self::from_format)
    }

    pub(crate) fn from_format(file_type: item::FileType) -> Option<Self> {
        Some(match file_type {
            item::FileType::Regular => Self::Regular,
            item::FileType::Directory => Self::Directory,
            item::FileType::Symlink => Self::Symlink,
            item::FileType::BlockDevice => Self::BlockDevice,
            item::FileType::CharDevice => Self::CharDevice,
            item::FileType::Fifo => Self::Fifo,
            item::FileType::Socket => Self::Socket,
            item::FileType::Unknown | item::FileType::Xattr => return None,
        })
    }
}

/// A point in time as stored: the nanoseconds may exceed a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds forward from there.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The current time, by the clock that all times of files come from.
    pub fn now() -> Self {
        let (seconds, nanoseconds) = larder_device::now();
        Self { seconds, nanoseconds }
    }

    /// As the system's time, if that can hold it.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let seconds = if self.seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(whole)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(whole)
        };
        seconds?.checked_add(Duration::from_nanos(self.nanoseconds.into()))
    }
}

impl From<Timespec> for Timestamp {
    fn from(time: Timespec) -> Self {
        Self { seconds: time.seconds(), nanoseconds: time.nsec.get() }
    }
}

/// The attributes of an inode (`struct btrfs_inode_item`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Id of the subvolume.
    pub subvolume: u64,
    /// Inode number, unique within the subvolume.
    pub inode: u64,
    /// Its type.
    pub file_type: FileType,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device node, zeros of anything else.
    pub device: (u32, u32),
    /// Bytes in a file or in a symbolic link's target; of a directory twice the lengths of its
    /// names.
    pub size_bytes: u64,
    /// Bytes that its extents cover, in whole sectors, uncompressed: `st_blocks` in bytes.
    pub allocated_bytes: u64,
    /// Bytes of dirty data, in whole sectors: those that are not counted as allocated yet, and
    /// those that will replace others.
    pub dirty_bytes: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub otime: Timestamp,
    /// Its flags on disk.
    pub flags: InodeFlags,
    /// The transaction that made it.
    pub generation: u64,
    /// The transaction that last changed it.
    pub change_generation: u64,
    /// Counts changes.
    pub sequence: u64,
}

impl Metadata {
    /// The attributes of an inode of this type; the others are zeros.
    #[doc(hidden)]
    pub fn of_type(file_type: FileType) -> Self {
        Self {
            subvolume: 0,
            inode: 0,
            file_type,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            device: (0, 0),
            size_bytes: 0,
            allocated_bytes: 0,
            dirty_bytes: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            otime: Timestamp::default(),
            flags: InodeFlags::empty(),
            generation: 0,
            change_generation: 0,
            sequence: 0,
        }
    }

    /// The flags as `FS_IOC_GETFLAGS` (`chattr`, `lsattr`) has them.
    pub fn ioctl_flags(&self) -> u32 {
        // A file whose data proved incompressible has both; this is what writeback does about it.
        let is_not_compressed = self.flags.contains(InodeFlags::NOCOMPRESS);
        let hidden = if is_not_compressed { InodeFlags::COMPRESS } else { InodeFlags::empty() };
        let shown = self.flags - hidden;
        IOCTL_FLAGS
            .iter()
            .filter(|(flag, _)| shown.contains(*flag))
            .fold(0, |flags, (_, bit)| flags | bit)
    }
}

/// Flags on disk and what they are called in `FS_IOC_GETFLAGS` (`FS_*_FL`).
const IOCTL_FLAGS: [(InodeFlags, u32); 10] = [
    (InodeFlags::SYNC, 0x8),
    (InodeFlags::IMMUTABLE, 0x10),
    (InodeFlags::APPEND, 0x20),
    (InodeFlags::NODUMP, 0x40),
    (InodeFlags::NOATIME, 0x80),
    (InodeFlags::COMPRESS, 0x4),
    (InodeFlags::NOCOMPRESS, 0x400),
    (InodeFlags::DIRSYNC, 0x1_0000),
    (InodeFlags::RO_VERITY, 0x10_0000),
    (InodeFlags::NODATACOW, 0x80_0000),
];

/// The flags on disk for flags of `FS_IOC_SETFLAGS`; `None` if some have none.
pub(crate) fn flags_of_ioctl(bits: u32) -> Option<InodeFlags> {
    let meant = IOCTL_FLAGS.iter().filter(|(_, bit)| bits & bit != 0);
    let (flags, known) = meant
        .fold((InodeFlags::empty(), 0), |(flags, known), (flag, bit)| (flags | *flag, known | bit));
    (known == bits).then_some(flags)
}

/// Linux counts device numbers as 12 bits of major and 20 bits of minor.
const MINOR_BITS: u32 = 20;

impl Metadata {
    pub(crate) fn new(
        subvolume: u64,
        inode: u64,
        file_type: FileType,
        item: &InodeItem,
        sectorsize: u64,
    ) -> Self {
        let (rdev, nbytes) = (item.rdev.get(), item.nbytes.get());
        Self {
            subvolume,
            inode,
            file_type,
            mode: item.mode.get(),
            nlink: item.nlink.get(),
            uid: item.uid.get(),
            gid: item.gid.get(),
            device: ((rdev >> MINOR_BITS) as u32, rdev as u32 & ((1 << MINOR_BITS) - 1)),
            size_bytes: item.size.get(),
            dirty_bytes: 0,
            allocated_bytes: nbytes.checked_next_multiple_of(sectorsize).unwrap_or(nbytes),
            atime: item.atime.into(),
            mtime: item.mtime.into(),
            ctime: item.ctime.into(),
            otime: item.otime.into(),
            flags: item.flags(),
            generation: item.generation.get(),
            change_generation: item.transid.get(),
            sequence: item.sequence.get(),
        }
    }
}

/// Reads an inode item that fills `bytes`.
pub(crate) fn parse_item(bytes: &[u8]) -> Result<(&InodeItem, FileType), FormatError> {
    let item: &InodeItem = read_exact_item(bytes)?;
    let mode = item.mode.get();
    let file_type = FileType::from_mode(mode)
        .ok_or_else(|| FormatError::invalid("inode", format!("mode {mode:o} has no file type")))?;
    Ok((item, file_type))
}
