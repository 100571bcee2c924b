//! The writing side: one extent's data in, one stream out.

use super::{
    Algorithm, Compression, CompressionError, ExtentKind, MAX_UNCOMPRESSED_BYTES,
    checked_sector_size, lzo, zlib, zstd,
};

/// Compresses extents, one after the other, with state that is set up once: keep one per thread.
pub struct Compressor {
    compression: Compression,
    encoder: Encoder,
}

enum Encoder {
    Zlib(zlib::Encoder),
    Lzo(lzo::Encoder),
    Zstd(zstd::Encoder),
}

impl Compressor {
    /// A compressor for one algorithm and level.
    pub fn new(compression: Compression) -> Self {
        let level = compression.level().unwrap_or_default();
        let encoder = match compression.algorithm() {
            Algorithm::Zlib => Encoder::Zlib(zlib::Encoder::new(level)),
            Algorithm::Lzo => Encoder::Lzo(lzo::Encoder::new()),
            Algorithm::Zstd => Encoder::Zstd(zstd::Encoder::new(level)),
        };
        Self { compression, encoder }
    }

    /// The algorithm and level.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Writes the stream for an extent with the data `input` to the start of `output` and returns
    /// the stream's length in bytes, or `None` if compressing does not pay.
    ///
    /// It pays if a regular extent takes at least one sector less than the input, and if an inline
    /// one is shorter than the input. `output` need not be longer than `input`; a stream that does
    /// not fit counts as one that does not pay. The caller clears the bytes between the stream's
    /// end and the end of its last sector.
    ///
    /// The input need not end at a sector boundary: the last extent of a file stops at its size.
    ///
    /// # Errors
    /// [`InputTooLong`](CompressionError::InputTooLong) beyond [`MAX_UNCOMPRESSED_BYTES`] for
    /// regular extents, one sector for inline ones;
    /// [`SectorSize`](CompressionError::SectorSize).
    pub fn compress(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        sector_size_bytes: u32,
        kind: ExtentKind,
    ) -> Result<Option<usize>, CompressionError> {
        let sector_bytes = checked_sector_size(sector_size_bytes)?;
        let input_limit = match kind {
            ExtentKind::Inline => sector_bytes,
            ExtentKind::Regular => MAX_UNCOMPRESSED_BYTES,
        };
        if input.len() > input_limit {
            let len_bytes = input.len();
            return Err(CompressionError::InputTooLong { len_bytes, limit_bytes: input_limit });
        }
        let output_limit = longest_that_pays(input.len(), sector_bytes, kind).min(output.len());
        if output_limit == 0 {
            return Ok(None);
        }
        let output = &mut output[..output_limit];
        Ok(match &mut self.encoder {
            Encoder::Zlib(encoder) => encoder.encode(input, output),
            Encoder::Lzo(encoder) => encoder.encode(input, output, sector_bytes),
            Encoder::Zstd(encoder) => encoder.encode(input, output),
        })
    }
}

/// Length in bytes of the longest stream that takes less space than the input itself.
fn longest_that_pays(input_len: usize, sector_bytes: usize, kind: ExtentKind) -> usize {
    match kind {
        ExtentKind::Inline => input_len.saturating_sub(1),
        ExtentKind::Regular => input_len.div_ceil(sector_bytes).saturating_sub(1) * sector_bytes,
    }
}
