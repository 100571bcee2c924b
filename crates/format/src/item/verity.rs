//! Files with fs-verity.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of the verity descriptor (`struct btrfs_verity_descriptor_item`, 25 bytes), at key offset
/// 0; the descriptor's bytes follow at offset 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VerityDescriptorItem {
    /// Bytes of the descriptor.
    pub size: U64,
    /// Zero.
    pub reserved: [U64; 2],
    /// 0.
    pub encryption: u8,
}

const _: () = assert!(size_of::<VerityDescriptorItem>() == 25);
