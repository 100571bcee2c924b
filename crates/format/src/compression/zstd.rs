//! zstd frames (RFC 8878), within the limits of btrfs.

use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, get_error_name,
};

use super::{Algorithm, CompressionError};

/// The largest window written: 128 KiB, the most that every kernel's decoder supports.
const WRITTEN_WINDOW_LOG: u32 = 17;

/// The largest window read: Linux 6.18 happens to support 2 MiB, so it reads such frames. This
/// bounds the memory that a frame's header can claim.
const READ_WINDOW_LOG: u32 = 21;

/// The reusable state of one thread.
pub(super) struct Decoder(DCtx<'static>);

impl Decoder {
    pub(super) fn new() -> Self {
        let mut context = DCtx::create();
        context
            .set_parameter(DParameter::WindowLogMax(READ_WINDOW_LOG))
            .expect("zstd supports windows of 1 KiB to 2 GiB");
        Self(context)
    }

    /// Decodes into `output` until it is full or the first frame ends; returns the bytes produced.
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CompressionError> {
        let algorithm = Algorithm::Zstd;
        let mut source = InBuffer::around(input);
        let output_len = output.len();
        let mut target = OutBuffer::around(output);
        // The previous stream may have been left in the middle.
        let mut status = self.0.reset(ResetDirective::SessionOnly);
        while status.is_ok() && target.pos() < output_len {
            if source.pos() == input.len() {
                return Err(CompressionError::Truncated { algorithm, len_bytes: input.len() });
            }
            status = self.0.decompress_stream(&mut target, &mut source);
            if status == Ok(0) {
                break;
            }
        }
        match status {
            Ok(_) => Ok(target.pos()),
            Err(code) => Err(CompressionError::Corrupt {
                algorithm,
                offset_bytes: source.pos(),
                reason: get_error_name(code),
            }),
        }
    }
}

/// The reusable state of one [`Compressor`](super::Compressor).
pub(super) struct Encoder(CCtx<'static>);

impl Encoder {
    pub(super) fn new(level: i32) -> Self {
        let mut context = CCtx::create();
        for parameter in
            [CParameter::CompressionLevel(level), CParameter::WindowLog(WRITTEN_WINDOW_LOG)]
        {
            context
                .set_parameter(parameter)
                .expect("zstd supports the levels and windows of btrfs");
        }
        Self(context)
    }

    /// Writes one frame into `output`; `None` if it does not fit. The only other error, lack of
    /// memory, must not fail a write either: the data is safe uncompressed.
    pub(super) fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        self.0.compress2(output, input).ok()
    }
}
