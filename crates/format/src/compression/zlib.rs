//! zlib streams (RFC 1950), the way btrfs reads and writes them.

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Algorithm, CompressionError};

/// Length of the stream's header: method and flags.
const HEADER_LEN: usize = 2;

/// The reusable state of one thread.
pub(super) struct Decoder(Decompress);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(Decompress::new(false))
    }

    /// Decodes into `output` until it is full or the stream ends; returns the bytes produced.
    ///
    /// The header is checked here and the rest read as raw deflate, because the kernel ignores the
    /// Adler-32 in the trailer: it reads a stream with a wrong one, and so must Larder.
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CompressionError> {
        let algorithm = Algorithm::Zlib;
        let truncated = CompressionError::Truncated { algorithm, len_bytes: input.len() };
        let corrupt = |offset_bytes, reason| {
            Err(CompressionError::Corrupt { algorithm, offset_bytes, reason })
        };
        let Some((header, deflated)) = input.split_first_chunk::<HEADER_LEN>() else {
            return Err(truncated);
        };
        if !is_plain_header(*header) {
            return corrupt(0, "not a zlib header");
        }
        self.0.reset(false);
        let status = self.0.decompress(deflated, output, FlushDecompress::Finish);
        let produced_bytes = self.0.total_out() as usize;
        match status {
            Ok(Status::StreamEnd) => Ok(produced_bytes),
            Ok(Status::Ok | Status::BufError) if produced_bytes == output.len() => {
                Ok(produced_bytes)
            }
            Ok(Status::Ok | Status::BufError) => Err(truncated),
            Err(_) => corrupt(HEADER_LEN + self.0.total_in() as usize, "invalid deflate data"),
        }
    }
}

/// Whether a header announces deflate with a window of at most 32 KiB and no preset dictionary.
fn is_plain_header([method, flags]: [u8; HEADER_LEN]) -> bool {
    method & 0x0f == 8
        && method >> 4 <= 7
        && flags & 0x20 == 0
        && u16::from_be_bytes([method, flags]) % 31 == 0
}

/// The reusable state of one [`Compressor`](super::Compressor).
///
/// Invariant: between calls its last stream is finished. Resetting zlib-rs 0.6 in the middle of a
/// stream of level 1 leaves a block open, and the next stream comes out corrupt.
pub(super) struct Encoder(Compress);

impl Encoder {
    pub(super) fn new(level: i32) -> Self {
        Self(Compress::new(flate2::Compression::new(level as u32), true))
    }

    /// Writes one stream into `output`; `None` if it does not fit.
    pub(super) fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        self.0.reset();
        if self.finish_into(input, output) {
            return Some(self.0.total_out() as usize);
        }
        let mut discarded = [0; 4096];
        while !self.finish_into(&input[self.0.total_in() as usize..], &mut discarded) {}
        None
    }

    /// Goes on with the stream; whether it is finished.
    fn finish_into(&mut self, rest: &[u8], output: &mut [u8]) -> bool {
        let status = self.0.compress(rest, output, FlushCompress::Finish);
        status.expect("the encoder's state is intact") == Status::StreamEnd
    }
}
