//! Inodes and their references.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, read_prefix, take};
use crate::packed::{Packed, PackedItems};

/// A point in time (`struct btrfs_timespec`, 12 bytes).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Timespec {
    /// Seconds since 1970, signed.
    pub sec: U64,
    /// Nanoseconds.
    pub nsec: U32,
}

const _: () = assert!(size_of::<Timespec>() == 12);

impl Timespec {
    /// A time of these seconds since 1970 and nanoseconds.
    pub fn new(sec: i64, nsec: u32) -> Self {
        Self { sec: (sec as u64).into(), nsec: nsec.into() }
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.sec.get() as i64
    }
}

impl From<(i64, u32)> for Timespec {
    /// Seconds since 1970, and nanoseconds from there.
    fn from((seconds, nanoseconds): (i64, u32)) -> Self {
        Self::new(seconds, nanoseconds)
    }
}

bitflags::bitflags! {
    /// Flags of an inode (`BTRFS_INODE_*`); the upper 32 bits are read-only compatible flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u64 {
        /// Data has no checksums.
        const NODATASUM = 1;
        /// Data is overwritten in place.
        const NODATACOW = 1 << 1;
        /// Read-only.
        const READONLY = 1 << 2;
        /// Not to be compressed.
        const NOCOMPRESS = 1 << 3;
        /// Has preallocated extents.
        const PREALLOC = 1 << 4;
        /// Writes are synchronous.
        const SYNC = 1 << 5;
        /// Cannot be changed.
        const IMMUTABLE = 1 << 6;
        /// Can only grow.
        const APPEND = 1 << 7;
        /// Not to be dumped.
        const NODUMP = 1 << 8;
        /// Access time is not kept.
        const NOATIME = 1 << 9;
        /// Changes of the directory are synchronous.
        const DIRSYNC = 1 << 10;
        /// To be compressed.
        const COMPRESS = 1 << 11;
        /// On the inode of a root item.
        const ROOT_ITEM_INIT = 1 << 31;
        /// Has fs-verity.
        const RO_VERITY = 1 << 32;

        const _ = !0;
    }
}

/// [`InodeFlags::ROOT_ITEM_INIT`] as a number.
pub const INODE_ROOT_ITEM_INIT: u64 = InodeFlags::ROOT_ITEM_INIT.bits();

/// An inode (`struct btrfs_inode_item`, 160 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InodeItem {
    /// The transaction that made the inode.
    pub generation: U64,
    /// The transaction that last changed it.
    pub transid: U64,
    /// Bytes in the file; for a directory twice the sum of its names' lengths.
    pub size: U64,
    /// Bytes that extents cover, uncompressed; holes count nothing.
    pub nbytes: U64,
    /// Unused.
    pub block_group: U64,
    /// Number of names.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Type and permissions, as `st_mode`.
    pub mode: U32,
    /// Device number of a device node: `major << 20 | minor`.
    pub rdev: U64,
    /// [`InodeFlags`].
    pub flags: U64,
    /// Counts changes, for NFS.
    pub sequence: U64,
    /// Zero.
    pub reserved: [U64; 4],
    /// Last access.
    pub atime: Timespec,
    /// Last change of attributes.
    pub ctime: Timespec,
    /// Last change of data.
    pub mtime: Timespec,
    /// Creation.
    pub otime: Timespec,
}

const _: () = assert!(size_of::<InodeItem>() == 160);

impl InodeItem {
    /// The flags.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }
}

/// The part of an inode reference before its name (`struct btrfs_inode_ref`, 10 bytes); its key is
/// (inode, type, parent directory).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InodeRefHeader {
    /// Index of the name in its directory.
    pub index: U64,
    /// Bytes of name.
    pub name_len: U16,
}

const _: () = assert!(size_of::<InodeRefHeader>() == 10);

/// One name in an `INODE_REF` item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRef<'a> {
    /// Index of the name in its directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

impl InodeRef<'_> {
    /// Appends the name as in an item. It is at most [`super::NAME_MAX`] bytes long.
    pub fn write(&self, out: &mut Vec<u8>) {
        let name_len = (self.name.len() as u16).into();
        out.extend(InodeRefHeader { index: self.index.into(), name_len }.as_bytes());
        out.extend(self.name);
    }
}

/// Iterates over the names in an `INODE_REF` item. Ends after an error.
pub type InodeRefs<'a> = PackedItems<'a, InodeRef<'a>>;

impl<'a> Packed<'a> for InodeRef<'a> {
    fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError> {
        let (header, rest) = read_prefix::<InodeRefHeader>(bytes)?;
        let (name, rest) = take(rest, usize::from(header.name_len.get()), "name")?;
        Ok((Self { index: header.index.get(), name }, rest))
    }
}

/// The part of an extended reference before its name (`struct btrfs_inode_extref`, 18 bytes); its
/// key is (inode, type, [`crate::name_hash::extended_ref`]).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InodeExtrefHeader {
    /// The directory.
    pub parent_objectid: U64,
    /// Index of the name in its directory.
    pub index: U64,
    /// Bytes of name.
    pub name_len: U16,
}

const _: () = assert!(size_of::<InodeExtrefHeader>() == 18);

/// One name in an `INODE_EXTREF` item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeExtref<'a> {
    /// The directory.
    pub parent: u64,
    /// Index of the name in its directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

impl InodeExtref<'_> {
    /// Appends the name as in an item. It is at most [`super::NAME_MAX`] bytes long.
    pub fn write(&self, out: &mut Vec<u8>) {
        let header = InodeExtrefHeader {
            parent_objectid: self.parent.into(),
            index: self.index.into(),
            name_len: (self.name.len() as u16).into(),
        };
        out.extend(header.as_bytes());
        out.extend(self.name);
    }
}

/// Iterates over the names in an `INODE_EXTREF` item. Ends after an error.
pub type InodeExtrefs<'a> = PackedItems<'a, InodeExtref<'a>>;

impl<'a> Packed<'a> for InodeExtref<'a> {
    fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError> {
        let (header, rest) = read_prefix::<InodeExtrefHeader>(bytes)?;
        let (name, rest) = take(rest, usize::from(header.name_len.get()), "name")?;
        let (parent, index) = (header.parent_objectid.get(), header.index.get());
        Ok((Self { parent, index, name }, rest))
    }
}
