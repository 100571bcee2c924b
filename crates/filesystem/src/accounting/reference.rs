//! References to extents, as they are sorted.

use larder_format::compression::Algorithm;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::root_sets::SetId;
use super::shown::StoredAs;

/// In [`Reference::root`]: only closed subvolumes have the leaf.
pub(super) const CLOSED: u32 = u32::MAX;

/// References of one file to one extent. They sort by extent, then by file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Reference {
    /// The address of the extent.
    pub(super) extent: u64,
    /// The number of the opened tree, or [`CLOSED`].
    pub(super) root: u32,
    /// The trees that have the leaf.
    pub(super) set: SetId,
    pub(super) inode: u64,
    /// The directory that has a name of the inode; 0 for none.
    pub(super) directory: u64,
    /// Bytes of the file.
    pub(super) file_bytes: u64,
    /// Bytes of the extent on devices, one copy.
    pub(super) disk_bytes: u64,
    /// Bytes of the extent before compression.
    pub(super) ram_bytes: u64,
    /// As [`StoredAs`] has it.
    pub(super) stored_as: u8,
    /// Whether it is about a further name of the file; its bytes are in the reference for the first.
    pub(super) is_further_name: u8,
    pub(super) unused: [u8; 6],
}

impl StoredAs {
    pub(super) fn of_item(compression: u8, is_preallocated: bool) -> Self {
        match Algorithm::from_disk(compression) {
            _ if is_preallocated => Self::Preallocated,
            Some(algorithm) => Self::Compressed(algorithm),
            None => Self::Plain,
        }
    }

    /// A number below [`Self::COUNT`]; preallocated is the greatest.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Compressed(algorithm) => algorithm.to_disk(),
            Self::Preallocated => 4,
        }
    }

    pub(super) fn of_number(number: u8) -> Self {
        match number {
            4 => Self::Preallocated,
            number => Self::of_item(number, false),
        }
    }

    pub(super) const COUNT: usize = 5;
}
