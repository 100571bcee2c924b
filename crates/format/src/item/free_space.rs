//! Free space: the free space tree, and the v1 cache.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::DiskKey;

/// [`FreeSpaceInfo`] flag: the block group's free space is kept in bitmaps.
pub const USING_BITMAPS: u32 = 1;
/// Bytes of a full free space bitmap.
pub const FREE_SPACE_BITMAP_BYTES: usize = 256;
/// Sectors that a full free space bitmap covers.
pub const FREE_SPACE_BITMAP_BITS: u64 = FREE_SPACE_BITMAP_BYTES as u64 * 8;
/// v1 cache: an entry is a free range.
pub const FREE_SPACE_V1_EXTENT: u8 = 1;
/// v1 cache: an entry is a bitmap, stored after the entries.
pub const FREE_SPACE_V1_BITMAP: u8 = 2;

/// The form of a block group's free space (`struct btrfs_free_space_info`, 8 bytes); its key is
/// (start, type, length) of the block group.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FreeSpaceInfo {
    /// Number of free ranges, also if they are kept in bitmaps.
    pub extent_count: U32,
    /// [`USING_BITMAPS`].
    pub flags: U32,
}

const _: () = assert!(size_of::<FreeSpaceInfo>() == 8);

/// v1 cache: the place of a block group's cache (`struct btrfs_free_space_header`, 41 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FreeSpaceHeader {
    /// The inode in the root tree that holds it.
    pub location: DiskKey,
    /// The transaction that wrote it.
    pub generation: U64,
    /// Number of entries.
    pub num_entries: U64,
    /// Number of bitmaps among them.
    pub num_bitmaps: U64,
}

const _: () = assert!(size_of::<FreeSpaceHeader>() == 41);

/// v1 cache: a free range or a bitmap (`struct btrfs_free_space_entry`, 17 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FreeSpaceEntry {
    /// Logical start.
    pub offset: U64,
    /// Bytes that are free.
    pub bytes: U64,
    /// [`FREE_SPACE_V1_EXTENT`] or [`FREE_SPACE_V1_BITMAP`].
    pub kind: u8,
}

const _: () = assert!(size_of::<FreeSpaceEntry>() == 17);
