//! Compression framing of file extents.
//!
//! A compressed extent holds one stream of at most [`MAX_UNCOMPRESSED_BYTES`] of file data.
//! * zlib: a zlib stream. Readers ignore its Adler-32: the extent's checksums cover the data.
//! * LZO: the stream's length, then an LZO1X segment with its length for each sector of data; no
//!   length field crosses a sector boundary.
//! * zstd: one frame whose window is at most 128 KiB.
//!
//! A *regular* extent is padded to whole sectors on disk, and the rest of its last sector after the
//! stream is ignored. The stream of a file's last extent stops at the file's size, so it may decode
//! to less than the `ram_bytes` of its extent item; readers supply zeros for the rest. An *inline*
//! extent has exactly the stream's length and must decode to all of `ram_bytes`.
//!
//! Invariants of this module:
//! * [`decompress`] reads nothing outside `input` and writes nothing outside `output`; its memory
//!   is constant per thread, and its time is bounded by the two lengths.
//! * The output of [`Compressor`] depends only on the input, the [`Compression`], the sector size
//!   and the [`ExtentKind`], never on earlier input.

mod compressor;
mod heuristic;
mod lzo;
mod spec;
mod zlib;
mod zstd;

use std::cell::RefCell;
use std::fmt;

pub use compressor::Compressor;
pub use heuristic::is_worth_trying;
pub use spec::{Compression, CompressionSpecError};

/// The most file data that one compressed extent can cover, in bytes.
pub const MAX_UNCOMPRESSED_BYTES: usize = 128 * 1024;

/// A compression algorithm; the discriminants are the `BTRFS_COMPRESS_*` numbers of
/// `btrfs_file_extent_item`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// `BTRFS_COMPRESS_ZLIB`.
    Zlib = 1,
    /// `BTRFS_COMPRESS_LZO`.
    Lzo = 2,
    /// `BTRFS_COMPRESS_ZSTD`.
    Zstd = 3,
}

impl Algorithm {
    /// Every algorithm, in the order of the on-disk numbers.
    pub const ALL: [Self; 3] = [Self::Zlib, Self::Lzo, Self::Zstd];

    /// The algorithm with an on-disk number; `None` for 0 (`BTRFS_COMPRESS_NONE`) and for numbers
    /// that Linux 6.18 does not define.
    pub fn from_disk(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.to_disk() == number)
    }

    /// The `BTRFS_COMPRESS_*` number.
    pub fn to_disk(self) -> u8 {
        self as u8
    }

    /// The name in mount options and in the `btrfs.compression` property.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of a compressed stream, which decides its framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentKind {
    /// In the leaf, after the header of its file extent item; covers at most one sector.
    Inline,
    /// In its own whole sectors.
    Regular,
}

/// Why a stream could not be decoded, or an input not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The input ends before the stream does.
    #[error("{algorithm} stream is cut short after {len_bytes} bytes")]
    Truncated {
        /// The stream's algorithm.
        algorithm: Algorithm,
        /// Length of the input in bytes.
        len_bytes: usize,
    },
    /// The stream breaks a rule of its format.
    #[error("{algorithm} stream is corrupt near byte {offset_bytes}: {reason}")]
    Corrupt {
        /// The stream's algorithm.
        algorithm: Algorithm,
        /// Offset into the input, in bytes, at or after the offence.
        offset_bytes: usize,
        /// The rule that is broken.
        reason: &'static str,
    },
    /// The stream of an inline extent decodes to less than the extent holds.
    #[error(
        "inline {algorithm} stream ends after {produced_bytes} of {expected_bytes} uncompressed bytes"
    )]
    EndsEarly {
        /// The stream's algorithm.
        algorithm: Algorithm,
        /// Bytes decoded.
        produced_bytes: usize,
        /// Bytes asked for.
        expected_bytes: usize,
    },
    /// One extent of the given kind cannot cover so much data.
    #[error("{len_bytes} bytes do not fit one compressed extent of at most {limit_bytes} bytes")]
    InputTooLong {
        /// Length of the input in bytes.
        len_bytes: usize,
        /// The most that would fit, in bytes.
        limit_bytes: usize,
    },
    /// Sectors are powers of two from 4 KiB to 64 KiB.
    #[error("{0} is no valid sector size in bytes")]
    SectorSize(u32),
}

/// Decoder states that are costly to set up, made when a thread first needs them.
#[derive(Default)]
struct Decoders {
    zlib: Option<zlib::Decoder>,
    zstd: Option<zstd::Decoder>,
}

thread_local! {
    static DECODERS: RefCell<Decoders> = RefCell::default();
}

/// Decodes the start of a compressed extent into `output`.
///
/// `input` is the whole extent as it is stored: `disk_num_bytes` of a regular extent, the item's
/// payload for an inline one. `output` may be shorter than the extent's `ram_bytes`: decoding stops
/// once it is full, so a range near the start of an extent costs only the part up to its end.
///
/// Returns how many bytes the stream produced. If the stream of a regular extent ends before
/// `output` is full, the rest of `output` is set to zero, as the kernel does: that is the normal
/// end of a file whose size is no multiple of the sector size.
///
/// One rule is stricter than in Linux 6.18: a zstd stream that the end of a regular extent cuts
/// short is an error here, like one of zlib there, while the kernel silently reads zeros.
///
/// # Errors
/// [`Truncated`](CompressionError::Truncated) and [`Corrupt`](CompressionError::Corrupt) for bad
/// streams, [`EndsEarly`](CompressionError::EndsEarly) for inline ones that hold too little, and
/// [`SectorSize`](CompressionError::SectorSize). The content of `output` is unspecified then.
pub fn decompress(
    algorithm: Algorithm,
    input: &[u8],
    output: &mut [u8],
    sector_size_bytes: u32,
    kind: ExtentKind,
) -> Result<usize, CompressionError> {
    let sector_bytes = checked_sector_size(sector_size_bytes)?;
    let produced_bytes = DECODERS.with_borrow_mut(|decoders| match (algorithm, kind) {
        (Algorithm::Zlib, _) => {
            decoders.zlib.get_or_insert_with(zlib::Decoder::new).decode(input, output)
        }
        (Algorithm::Zstd, _) => {
            decoders.zstd.get_or_insert_with(zstd::Decoder::new).decode(input, output)
        }
        (Algorithm::Lzo, ExtentKind::Inline) => lzo::decode_inline(input, output, sector_bytes),
        (Algorithm::Lzo, ExtentKind::Regular) => lzo::decode_regular(input, output, sector_bytes),
    })?;
    if kind == ExtentKind::Inline && produced_bytes < output.len() {
        let expected_bytes = output.len();
        return Err(CompressionError::EndsEarly { algorithm, produced_bytes, expected_bytes });
    }
    output[produced_bytes..].fill(0);
    Ok(produced_bytes)
}

fn checked_sector_size(sector_size_bytes: u32) -> Result<usize, CompressionError> {
    if sector_size_bytes.is_power_of_two() && (4096..=65536).contains(&sector_size_bytes) {
        Ok(sector_size_bytes as usize)
    } else {
        Err(CompressionError::SectorSize(sector_size_bytes))
    }
}

#[cfg(test)]
mod tests;
