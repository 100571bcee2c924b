//! The raid stripe tree: the places of a data extent's parts.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One part (`struct btrfs_raid_stride`, 16 bytes). A `RAID_STRIPE` item, whose key is
/// (logical start, type, length), is an array of these.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RaidStride {
    /// Id of the device.
    pub devid: U64,
    /// Offset on the device.
    pub physical: U64,
}

const _: () = assert!(size_of::<RaidStride>() == 16);
