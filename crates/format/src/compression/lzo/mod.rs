//! The framing of LZO extents.
//!
//! LZO1X has no framing of its own, so btrfs adds it. All lengths are little-endian `u32`:
//! ```text
//! total length in bytes, this field included
//! segment length, segment          one LZO1X stream per sector of file data
//! segment length, segment
//! ...
//! ```
//! A segment may cross sector boundaries, but a length field may not: where fewer than four bytes
//! are left in a sector, they are zero and the length stands at the start of the next one. An
//! inline extent has exactly one segment.
//!
//! The kernel refuses a regular extent whose total length is more than the extent or leaves whole
//! sectors of it unused, and so does this reader.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use super::{Algorithm, CompressionError, MAX_UNCOMPRESSED_BYTES};
use decode::{Malformed, Progress};

/// Bytes of a length field.
const LENGTH_BYTES: usize = 4;

/// Bytes of the two length fields before the one segment of an inline extent.
const INLINE_HEADER_BYTES: usize = 2 * LENGTH_BYTES;

/// The longest LZO1X stream, in bytes, that the kernel accepts for one sector, and also the most
/// bytes that one segment may decode to.
fn longest_segment(sector_bytes: usize) -> usize {
    sector_bytes + sector_bytes / 16 + 64 + 3 + 2
}

/// Decodes a regular extent until `output` is full or the stream ends; returns the bytes produced.
pub(super) fn decode_regular(
    input: &[u8],
    output: &mut [u8],
    sector_bytes: usize,
) -> Result<usize, CompressionError> {
    let total_bytes = length_at(input, 0)?;
    if total_bytes > input.len().min(MAX_UNCOMPRESSED_BYTES) {
        return Err(corrupt(0, "total length exceeds the extent"));
    }
    if total_bytes.next_multiple_of(sector_bytes) < input.len() {
        return Err(corrupt(0, "total length leaves sectors unused"));
    }
    let mut read = LENGTH_BYTES;
    let mut written = 0;
    while read < total_bytes && written < output.len() {
        read = next_length_offset(read, sector_bytes);
        if read >= total_bytes {
            break;
        }
        let segment_bytes = length_at(input, read)?;
        if segment_bytes > longest_segment(sector_bytes) {
            return Err(corrupt(read, "segment is longer than a sector can need"));
        }
        read += LENGTH_BYTES;
        let segment = input.get(read..read + segment_bytes).ok_or_else(|| truncated(input))?;
        written += decode_segment(segment, read, &mut output[written..], sector_bytes)?;
        read += segment_bytes;
    }
    Ok(written)
}

/// Decodes an inline extent, whose lengths must be exact.
pub(super) fn decode_inline(
    input: &[u8],
    output: &mut [u8],
    sector_bytes: usize,
) -> Result<usize, CompressionError> {
    if length_at(input, 0)? != input.len() {
        return Err(corrupt(0, "total length is not that of the inline extent"));
    }
    if length_at(input, LENGTH_BYTES)? + INLINE_HEADER_BYTES != input.len() {
        return Err(corrupt(LENGTH_BYTES, "segment does not fill the inline extent"));
    }
    decode_segment(&input[INLINE_HEADER_BYTES..], INLINE_HEADER_BYTES, output, sector_bytes)
}

/// Decodes one segment, which starts at `offset_bytes` of the extent.
fn decode_segment(
    segment: &[u8],
    offset_bytes: usize,
    output: &mut [u8],
    sector_bytes: usize,
) -> Result<usize, CompressionError> {
    let room = output.len();
    let limit = room.min(longest_segment(sector_bytes));
    match decode::decode(segment, &mut output[..limit]) {
        Ok(Progress::Ended { produced_bytes }) => Ok(produced_bytes),
        Ok(Progress::OutputFull) if limit == room => Ok(room),
        Ok(Progress::OutputFull) => {
            Err(corrupt(offset_bytes, "segment decodes to more than a sector"))
        }
        Err(Malformed { offset_bytes: within, reason }) => {
            Err(corrupt(offset_bytes + within, reason))
        }
    }
}

/// The offset of the next length field, given the end of the previous segment.
fn next_length_offset(offset_bytes: usize, sector_bytes: usize) -> usize {
    let left_in_sector = sector_bytes - offset_bytes % sector_bytes;
    if left_in_sector < LENGTH_BYTES { offset_bytes + left_in_sector } else { offset_bytes }
}

fn length_at(input: &[u8], offset_bytes: usize) -> Result<usize, CompressionError> {
    match input.get(offset_bytes..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => Ok(u32::from_le_bytes(*bytes) as usize),
        None => Err(truncated(input)),
    }
}

fn truncated(input: &[u8]) -> CompressionError {
    CompressionError::Truncated { algorithm: Algorithm::Lzo, len_bytes: input.len() }
}

fn corrupt(offset_bytes: usize, reason: &'static str) -> CompressionError {
    CompressionError::Corrupt { algorithm: Algorithm::Lzo, offset_bytes, reason }
}

/// The reusable state of one [`Compressor`](super::Compressor).
pub(super) struct Encoder(encode::Matcher);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(encode::Matcher::new())
    }

    /// Writes the framed stream into `output`; `None` if it does not fit. Input of one sector or
    /// less also gives a valid inline extent.
    pub(super) fn encode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        sector_bytes: usize,
    ) -> Option<usize> {
        let mut end = LENGTH_BYTES;
        for sector in input.chunks(sector_bytes) {
            let length_at = next_length_offset(end, sector_bytes);
            let segment_at = length_at + LENGTH_BYTES;
            let segment_bytes = self.0.encode(sector, output.get_mut(segment_at..)?)?;
            output[end..length_at].fill(0);
            output[length_at..segment_at].copy_from_slice(&(segment_bytes as u32).to_le_bytes());
            end = segment_at + segment_bytes;
        }
        output.get_mut(..LENGTH_BYTES)?.copy_from_slice(&(end as u32).to_le_bytes());
        Some(end)
    }
}
