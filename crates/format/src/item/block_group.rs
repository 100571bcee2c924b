//! Block groups.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::BlockGroupFlags;

/// A block group (`struct btrfs_block_group_item`, 24 bytes); its key is (start, type, length).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BlockGroupItem {
    /// Bytes that extents use.
    pub used: U64,
    /// [`crate::objectid::FIRST_CHUNK_TREE`].
    pub chunk_objectid: U64,
    /// [`BlockGroupFlags`].
    pub flags: U64,
}

const _: () = assert!(size_of::<BlockGroupItem>() == 24);

impl BlockGroupItem {
    /// Type and profile.
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.flags.get())
    }
}
