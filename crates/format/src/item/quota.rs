//! Quota groups.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, read_prefix};

/// The level of a quota group is in the top 16 bits of its id.
pub const QGROUP_LEVEL_SHIFT: u32 = 48;

/// State of the quota tree (`struct btrfs_qgroup_status_item`, 32 bytes, or 40 with `enable_gen`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QgroupStatusItem {
    /// 1.
    pub version: U64,
    /// The transaction up to which counts are right.
    pub generation: U64,
    /// See [`qgroup_status_flags`].
    pub flags: U64,
    /// The progress of a rescan.
    pub rescan: U64,
}

const _: () = assert!(size_of::<QgroupStatusItem>() == 32);

impl QgroupStatusItem {
    /// Reads the item, and the transaction that switched simple quotas on if it is recorded.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, Option<u64>), FormatError> {
        let (item, rest) = read_prefix::<Self>(bytes)?;
        if rest.is_empty() {
            return Ok((item, None));
        }
        let (enable_gen, _) = read_prefix::<U64>(rest)?;
        Ok((item, Some(enable_gen.get())))
    }
}

/// Flags of [`QgroupStatusItem`] (`BTRFS_QGROUP_STATUS_FLAG_*`).
pub mod qgroup_status_flags {
    /// Quotas are on.
    pub const ON: u64 = 1;
    /// A rescan is running.
    pub const RESCAN: u64 = 1 << 1;
    /// Counts are wrong until a rescan.
    pub const INCONSISTENT: u64 = 1 << 2;
    /// Simple quotas.
    pub const SIMPLE_MODE: u64 = 1 << 3;
}

/// Counts of a quota group (`struct btrfs_qgroup_info_item`, 40 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QgroupInfoItem {
    /// The transaction that last changed it.
    pub generation: U64,
    /// Bytes referred to.
    pub rfer: U64,
    /// Bytes referred to, compressed.
    pub rfer_cmpr: U64,
    /// Bytes that no other refers to.
    pub excl: U64,
    /// Bytes that no other refers to, compressed.
    pub excl_cmpr: U64,
}

const _: () = assert!(size_of::<QgroupInfoItem>() == 40);

/// Limits of a quota group (`struct btrfs_qgroup_limit_item`, 40 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QgroupLimitItem {
    /// See [`qgroup_limit_flags`].
    pub flags: U64,
    /// Bytes referred to.
    pub max_rfer: U64,
    /// Bytes that no other refers to.
    pub max_excl: U64,
    /// Reserved.
    pub rsv_rfer: U64,
    /// Reserved.
    pub rsv_excl: U64,
}

const _: () = assert!(size_of::<QgroupLimitItem>() == 40);

/// Flags of [`QgroupLimitItem`] (`BTRFS_QGROUP_LIMIT_*`).
pub mod qgroup_limit_flags {
    /// `max_rfer` is in force.
    pub const MAX_RFER: u64 = 1;
    /// `max_excl` is in force.
    pub const MAX_EXCL: u64 = 1 << 1;
    /// `rsv_rfer` is in force.
    pub const RSV_RFER: u64 = 1 << 2;
    /// `rsv_excl` is in force.
    pub const RSV_EXCL: u64 = 1 << 3;
    /// `max_rfer` counts compressed bytes.
    pub const RFER_CMPR: u64 = 1 << 4;
    /// `max_excl` counts compressed bytes.
    pub const EXCL_CMPR: u64 = 1 << 5;
}
