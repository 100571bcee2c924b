//! Chunks: from logical addresses to devices.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, read_prefix};
use crate::{BlockGroupFlags, Physical, Uuid};

/// The part of a chunk before its stripes (`struct btrfs_chunk` without its stripe, 48 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ChunkHeader {
    /// Logical bytes.
    pub length: U64,
    /// Objectid of the extent tree.
    pub owner: U64,
    /// Bytes of a stripe on one device before the next device follows.
    pub stripe_len: U64,
    /// [`BlockGroupFlags`].
    pub flags: U64,
    /// Preferred alignment of I/O.
    pub io_align: U32,
    /// Preferred width of I/O.
    pub io_width: U32,
    /// Bytes in a sector.
    pub sector_size: U32,
    /// Stripes that follow.
    pub num_stripes: U16,
    /// Stripes that hold one byte range, in RAID10.
    pub sub_stripes: U16,
}

const _: () = assert!(size_of::<ChunkHeader>() == 48);

/// One device's part of a chunk (`struct btrfs_stripe`, 32 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Stripe {
    /// Id of the device.
    pub devid: U64,
    /// Offset on the device.
    pub offset: U64,
    /// Uuid of the device.
    pub dev_uuid: [u8; 16],
}

const _: () = assert!(size_of::<Stripe>() == 32);

impl Stripe {
    /// Offset on the device.
    pub fn offset(&self) -> Physical {
        Physical(self.offset.get())
    }

    /// Uuid of the device.
    pub fn dev_uuid(&self) -> Uuid {
        Uuid::from_bytes(self.dev_uuid)
    }
}

/// A chunk item. Its logical start is its key's offset.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The part before the stripes.
    pub header: &'a ChunkHeader,
    /// At least one stripe.
    pub stripes: &'a [Stripe],
}

impl<'a> Chunk<'a> {
    /// Bytes of a chunk item with so many stripes.
    pub const fn len_bytes(num_stripes: usize) -> usize {
        size_of::<ChunkHeader>() + num_stripes * size_of::<Stripe>()
    }

    /// The length of the chunk item at the start of `bytes`, from its number of stripes.
    pub fn len_bytes_of(bytes: &[u8]) -> Result<usize, FormatError> {
        let (header, _) = read_prefix::<ChunkHeader>(bytes)?;
        Ok(Self::len_bytes(usize::from(header.num_stripes.get())))
    }

    /// Reads a chunk item that fills `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (header, rest) = read_prefix::<ChunkHeader>(bytes)?;
        let num_stripes = usize::from(header.num_stripes.get());
        if num_stripes == 0 {
            return Err(FormatError::invalid("chunk", "num_stripes is 0"));
        }
        let stripes = <[Stripe]>::ref_from_bytes_with_elems(rest, num_stripes).map_err(|_| {
            FormatError::WrongSize {
                structure: "chunk",
                needed: Self::len_bytes(num_stripes),
                available: bytes.len(),
            }
        })?;
        Ok(Self { header, stripes })
    }

    /// Type and profile.
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.header.flags.get())
    }
}
