//! References to extents, as they are sorted.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::root_sets::SetId;

/// In [`Reference::root`]: only closed subvolumes have the leaf.
pub(crate) const CLOSED: u32 = u32::MAX;

/// References of one file to one extent. They sort by extent, then by file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Reference {
    /// The address of the extent.
    pub(crate) extent: u64,
    /// The number of the opened tree, or [`CLOSED`].
    pub(crate) root: u32,
    /// The trees that have the leaf.
    pub(crate) set: SetId,
    pub(crate) inode: u64,
    /// The directory that has a name of the inode; 0 for none.
    pub(crate) directory: u64,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
    /// Bytes of the extent on devices, one copy.
    pub(crate) disk_bytes: u64,
    /// Bytes of the extent before compression.
    pub(crate) ram_bytes: u64,
    /// As [`StoredAs`] has it.
    pub(crate) stored_as: u8,
    /// Whether it is about a further name of the file; its bytes are in the reference for the
    /// first.
    pub(crate) is_further_name: u8,
    pub(crate) unused: [u8; 6],
}
