//! Devices, their extents, statistics, replacement and balance.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ItemType, Key, Logical, Uuid};

/// A device (`struct btrfs_dev_item`, 98 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevItem {
    /// Id of the device in the file system.
    pub devid: U64,
    /// Size in bytes.
    pub total_bytes: U64,
    /// Bytes allocated to chunks.
    pub bytes_used: U64,
    /// Preferred alignment of I/O.
    pub io_align: U32,
    /// Preferred width of I/O.
    pub io_width: U32,
    /// Bytes in a sector.
    pub sector_size: U32,
    /// Unused.
    pub kind: U64,
    /// Unused.
    pub generation: U64,
    /// Unused.
    pub start_offset: U64,
    /// Unused.
    pub dev_group: U32,
    /// Unused.
    pub seek_speed: u8,
    /// Unused.
    pub bandwidth: u8,
    /// Uuid of the device.
    pub uuid: [u8; 16],
    /// Uuid of the file system that owns the device; another one for a seed device.
    pub fsid: [u8; 16],
}

const _: () = assert!(size_of::<DevItem>() == 98);

impl DevItem {
    /// Uuid of the device.
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }

    /// Uuid of the file system that owns the device.
    pub fn fsid(&self) -> Uuid {
        Uuid::from_bytes(self.fsid)
    }
}

/// A range of a device that belongs to a chunk (`struct btrfs_dev_extent`, 48 bytes); its key is
/// (device id, type, physical start).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevExtent {
    /// Objectid of the chunk tree.
    pub chunk_tree: U64,
    /// [`crate::objectid::FIRST_CHUNK_TREE`].
    pub chunk_objectid: U64,
    /// Logical start of the chunk.
    pub chunk_offset: U64,
    /// Bytes.
    pub length: U64,
    /// Uuid of the chunk tree.
    pub chunk_tree_uuid: [u8; 16],
}

const _: () = assert!(size_of::<DevExtent>() == 48);

impl DevExtent {
    /// Logical start of the chunk.
    pub fn chunk_offset(&self) -> Logical {
        Logical(self.chunk_offset.get())
    }
}

/// Statistics of a device (`struct btrfs_dev_stats_item`, 40 bytes); its key is
/// ([`crate::objectid::DEV_STATS`], `PERSISTENT_ITEM`, device id).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevStatsItem {
    /// Errors of writing.
    pub write_errs: U64,
    /// Errors of reading.
    pub read_errs: U64,
    /// Errors of flushing.
    pub flush_errs: U64,
    /// Checksums that did not match.
    pub corruption_errs: U64,
    /// Blocks of another generation than expected.
    pub generation_errs: U64,
}

const _: () = assert!(size_of::<DevStatsItem>() == 40);

/// State of a device replacement (`struct btrfs_dev_replace_item`, 72 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DevReplaceItem {
    /// Id of the device that is replaced.
    pub src_devid: U64,
    /// Start of the range being copied.
    pub cursor_left: U64,
    /// End of the range being copied.
    pub cursor_right: U64,
    /// Whether the source is avoided.
    pub cont_reading_from_srcdev_mode: U64,
    /// Never started, started, finished, cancelled or suspended.
    pub replace_state: U64,
    /// Seconds since 1970.
    pub time_started: U64,
    /// Seconds since 1970.
    pub time_stopped: U64,
    /// Errors of writing.
    pub num_write_errors: U64,
    /// Errors of reading that no copy could mend.
    pub num_uncorrectable_read_errors: U64,
}

const _: () = assert!(size_of::<DevReplaceItem>() == 72);

/// What a replace does (`BTRFS_IOCTL_DEV_REPLACE_STATE_*`).
pub mod replace_state {
    /// There was none.
    pub const NEVER_STARTED: u64 = 0;
    /// It goes on, or a crash ended it.
    pub const STARTED: u64 = 1;
    /// The target has the place.
    pub const FINISHED: u64 = 2;
    /// It was given up.
    pub const CANCELED: u64 = 3;
    /// It waits to go on.
    pub const SUSPENDED: u64 = 4;
}

impl DevReplaceItem {
    /// Its key in the device tree.
    pub const KEY: Key = Key::new(0, ItemType::DEV_REPLACE, 0);

    /// Whether the replace is neither finished nor cancelled.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.replace_state.get(), replace_state::STARTED | replace_state::SUSPENDED)
    }
}

/// The filters of a balance (`struct btrfs_disk_balance_args`, 136 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiskBalanceArgs {
    /// Profiles.
    pub profiles: U64,
    /// Percentage, or two 32-bit bounds of it.
    pub usage: U64,
    /// Device.
    pub devid: U64,
    /// Start of a range of the device.
    pub pstart: U64,
    /// End of a range of the device.
    pub pend: U64,
    /// Start of a logical range.
    pub vstart: U64,
    /// End of a logical range.
    pub vend: U64,
    /// Profile to convert to.
    pub target: U64,
    /// Which of the filters are in force.
    pub flags: U64,
    /// The most chunks, or two 32-bit bounds.
    pub limit: U64,
    /// The least stripes.
    pub stripes_min: U32,
    /// The most stripes.
    pub stripes_max: U32,
    /// Zero.
    pub unused: [U64; 6],
}

const _: () = assert!(size_of::<DiskBalanceArgs>() == 136);

/// State of a balance (`struct btrfs_balance_item`, 448 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BalanceItem {
    /// See [`balance_flags`].
    pub flags: U64,
    /// Which data chunks.
    pub data: DiskBalanceArgs,
    /// Which metadata chunks.
    pub meta: DiskBalanceArgs,
    /// Which system chunks.
    pub sys: DiskBalanceArgs,
    /// Zero.
    pub unused: [U64; 4],
}

const _: () = assert!(size_of::<BalanceItem>() == 448);

/// Flags of [`BalanceItem`] (`BTRFS_BALANCE_*`).
pub mod balance_flags {
    /// Data is balanced.
    pub const DATA: u64 = 1;
    /// System chunks are balanced.
    pub const SYSTEM: u64 = 1 << 1;
    /// Metadata is balanced.
    pub const METADATA: u64 = 1 << 2;
    /// Redundancy may be reduced.
    pub const FORCE: u64 = 1 << 3;
    /// It was interrupted and continues.
    pub const RESUME: u64 = 1 << 4;
}
