//! Compressed extents.

use larder_format::compression::{Algorithm, ExtentKind, MAX_UNCOMPRESSED_BYTES, decompress};

/// Decodes a stream: the first byte chooses algorithm and framing, the next three the length of the
/// output, the rest is the stream.
pub fn decompression(bytes: &[u8]) {
    let Some((&[choice, len @ ..], stream)) = bytes.split_first_chunk::<4>() else { return };
    let algorithm = Algorithm::ALL[usize::from(choice) % Algorithm::ALL.len()];
    let kind = if choice & 0x40 == 0 { ExtentKind::Regular } else { ExtentKind::Inline };
    let sector_bytes = if choice & 0x80 == 0 { 4096 } else { 16384 };
    let len = u32::from_le_bytes([len[0], len[1], len[2], 0]) as usize;
    let mut output = vec![0; len % (MAX_UNCOMPRESSED_BYTES + 1)];
    if let Ok(produced) = decompress(algorithm, stream, &mut output, sector_bytes, kind) {
        assert!(produced <= output.len());
    }
}
