//! The ranges of a file: inline data, an extent, a preallocated extent or a hole.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Logical;
use crate::error::{FormatError, read_exact_item, read_prefix};

/// Most bytes of a file that one uncompressed extent holds.
pub const MAX_EXTENT_BYTES: u64 = 128 * 1024 * 1024;
/// Most bytes of a file that one compressed extent holds.
pub const MAX_COMPRESSED_EXTENT_BYTES: u64 = 128 * 1024;
/// Bytes before the data of an inline extent.
pub const FILE_EXTENT_INLINE_HEADER_SIZE: usize = size_of::<FileExtentHeader>();

/// The start of every file extent item (21 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FileExtentHeader {
    /// The transaction that made it.
    pub generation: U64,
    /// Bytes of the extent's data after decompression; an upper bound where not compressed.
    pub ram_bytes: U64,
    /// 0, or the number of a [`crate::compression::Algorithm`].
    pub compression: u8,
    /// 0.
    pub encryption: u8,
    /// 0.
    pub other_encoding: U16,
    /// [`FileExtentKind`].
    pub kind: u8,
}

const _: () = assert!(size_of::<FileExtentHeader>() == 21);

/// The type of a file extent item (`BTRFS_FILE_EXTENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileExtentKind {
    /// The data follows the header.
    Inline = 0,
    /// The data is in an extent, or there is a hole.
    Regular = 1,
    /// There is an extent, but reads give zeros.
    Prealloc = 2,
}

/// A regular or preallocated file extent item (`struct btrfs_file_extent_item`, 53 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FileExtentItem {
    /// The start of every file extent item.
    pub header: FileExtentHeader,
    /// The rest of one that is not inline.
    pub extent: RegularExtent,
}

const _: () = assert!(size_of::<FileExtentItem>() == 53);

/// The place of a file extent's data (the last 32 bytes of `struct btrfs_file_extent_item`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegularExtent {
    /// Logical start of the whole extent; 0 for a hole.
    pub disk_bytenr: U64,
    /// Bytes of the whole extent on disk.
    pub disk_num_bytes: U64,
    /// The start of this file extent in the extent's decompressed data.
    pub offset: U64,
    /// Bytes of the file that it covers.
    pub num_bytes: U64,
}

impl RegularExtent {
    /// Logical start of the whole extent, or `None` for a hole.
    pub fn disk_bytenr(&self) -> Option<Logical> {
        (self.disk_bytenr.get() != 0).then(|| Logical(self.disk_bytenr.get()))
    }
}

/// A parsed `EXTENT_DATA` item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileExtent<'a> {
    /// The data, perhaps compressed, is in the item.
    Inline {
        /// The item's header.
        header: &'a FileExtentHeader,
        /// The data as stored.
        data: &'a [u8],
    },
    /// The data is in an extent, or there is a hole, or (`Prealloc`) reads give zeros.
    Regular {
        /// The item's header.
        header: &'a FileExtentHeader,
        /// The place of the data.
        extent: &'a RegularExtent,
        /// Whether the extent is preallocated.
        preallocated: bool,
    },
}

impl<'a> FileExtent<'a> {
    /// Reads an `EXTENT_DATA` item that fills `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (header, data) = read_prefix::<FileExtentHeader>(bytes)?;
        match header.kind {
            0 => Ok(Self::Inline { header, data }),
            1 | 2 => {
                let item = read_exact_item::<FileExtentItem>(bytes)?;
                let preallocated = header.kind == FileExtentKind::Prealloc as u8;
                Ok(Self::Regular { header: &item.header, extent: &item.extent, preallocated })
            }
            kind => Err(FormatError::invalid("file extent", format!("unknown type {kind}"))),
        }
    }

    /// The header, which both forms start with.
    pub fn header(&self) -> &'a FileExtentHeader {
        match self {
            Self::Inline { header, .. } | Self::Regular { header, .. } => header,
        }
    }

    /// Bytes of the file that it covers; for an inline extent its decompressed length.
    pub fn num_bytes(&self) -> u64 {
        match self {
            Self::Inline { header, .. } => header.ram_bytes.get(),
            Self::Regular { extent, .. } => extent.num_bytes.get(),
        }
    }
}
