//! Items that are only in log trees.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// End of a range that the log is authoritative for (`struct btrfs_dir_log_item`, 8 bytes); its
/// key is (directory, type, start).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DirLogItem {
    /// The last name hash or index of the range.
    pub end: U64,
}

const _: () = assert!(size_of::<DirLogItem>() == 8);
