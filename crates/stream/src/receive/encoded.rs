//! Extents that are sent as they are stored.

use larder_format::compression::{Algorithm, ExtentKind, MAX_UNCOMPRESSED_BYTES, decompress};

use super::error::CommandProblem;
use crate::wire::Command;

/// LZO has a number for each sector size from 4 KiB on.
const LZO: std::ops::RangeInclusive<u32> = 3..=7;

/// A part of an extent as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded<'a> {
    /// Bytes of the file that it covers.
    pub(super) len_bytes: u64,
    /// Bytes of the whole extent when decoded.
    pub(super) decoded_bytes: u64,
    /// Where in the decoded extent the part begins.
    pub(super) start: u64,
    /// Algorithm (`BTRFS_ENCODED_IO_COMPRESSION_*`).
    pub(super) compression: u32,
    pub(super) data: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// The extent of an encoded write.
    pub(super) fn of(command: &Command<'a>) -> Result<Self, CommandProblem> {
        let Command::EncodedWrite {
            unencoded_file_len: len_bytes,
            unencoded_len: decoded_bytes,
            unencoded_offset: start,
            compression,
            encryption,
            data,
            ..
        } = *command
        else {
            return Err(CommandProblem::Invalid("it writes no extent"));
        };
        if encryption.unwrap_or_default() != 0 {
            return Err(CommandProblem::Unsupported("encryption"));
        }
        let compression = compression.unwrap_or_default();
        Ok(Self { len_bytes, decoded_bytes, start, compression, data })
    }

    /// The compression algorithm, and the sector size of LZO.
    pub(super) fn algorithm(&self) -> Result<Option<(Algorithm, u32)>, CommandProblem> {
        Ok(Some(match self.compression {
            0 => return Ok(None),
            1 => (Algorithm::Zlib, 4096),
            2 => (Algorithm::Zstd, 4096),
            number if LZO.contains(&number) => (Algorithm::Lzo, 4096 << (number - LZO.start())),
            _ => return Err(CommandProblem::Unsupported("this compression")),
        }))
    }

    /// Decodes the whole extent.
    pub(super) fn decode(&self) -> Result<Vec<u8>, CommandProblem> {
        let data = self.data;
        let Some((algorithm, sector_bytes)) = self.algorithm()? else {
            if data.len() as u64 == self.decoded_bytes {
                return Ok(data.to_vec());
            }
            return Err(CommandProblem::Invalid("data that is not as long as it says"));
        };
        if self.decoded_bytes > MAX_UNCOMPRESSED_BYTES as u64 {
            return Err(CommandProblem::Invalid("a compressed extent of more than 128 KiB"));
        }
        // An extent that was inline is not padded to sectors.
        let is_whole = data.len().is_multiple_of(sector_bytes as usize);
        let kind = if is_whole { ExtentKind::Regular } else { ExtentKind::Inline };
        let mut decoded = vec![0; self.decoded_bytes as usize];
        decompress(algorithm, data, &mut decoded, sector_bytes, kind)?;
        Ok(decoded)
    }

    /// The part of the decoded extent that is written.
    pub(super) fn part<'d>(&self, decoded: &'d [u8]) -> Result<&'d [u8], CommandProblem> {
        let end = self.start.checked_add(self.len_bytes);
        let range = end.and_then(|end| decoded.get(self.start as usize..end as usize));
        range.ok_or(CommandProblem::Invalid("a part outside of the extent"))
    }
}
