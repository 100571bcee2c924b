//! Where fuzzing starts from: one small input of each kind, all of them taken from an image or made
//! here, so that nothing needs to be kept.

use larder_format::compression::{Algorithm, Compression, Compressor, ExtentKind};
use zerocopy::IntoBytes;

use crate::Image;

/// Inputs of [`crate::superblock`].
pub fn superblocks(image: &Image) -> Vec<Vec<u8>> {
    vec![image.superblock().as_bytes().to_vec()]
}

/// Inputs of [`crate::tree_block`]: up to three blocks of each tree and level.
pub fn tree_blocks(image: &Image) -> Vec<Vec<u8>> {
    let choice = image.superblock().csum_type.get() as u8 | 4;
    image.blocks(3).into_iter().map(|block| [&[choice], &block[..]].concat()).collect()
}

/// Inputs of [`crate::decompression`]: every algorithm, inline and not.
pub fn streams() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0_u32..20_000).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let kinds = [(ExtentKind::Regular, 0, 60_000), (ExtentKind::Inline, 0x40, 4000)];
    let mut streams = Vec::new();
    for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (kind, choice, len) in kinds {
            let mut compressor = Compressor::new(Compression::from(algorithm));
            let mut stream = vec![0; len];
            let compressed = compressor.compress(&data[..len], &mut stream, 4096, kind);
            let stream_len = compressed.ok().flatten().expect("numbers are compressible");
            // An extent is whole sectors, an inline one ends with its stream.
            let padded = stream_len.next_multiple_of(4096);
            stream.truncate(if kind == ExtentKind::Inline { stream_len } else { padded });
            let len = (len as u32).to_le_bytes();
            let head = [choice + number as u8, len[0], len[1], len[2]];
            streams.push([&head, &stream[..]].concat());
        }
    }
    streams
}

/// Inputs of [`crate::open_and_walk`]: no patch, and some that change a byte of some blocks.
pub fn patches() -> Vec<Vec<u8>> {
    let patch = |n: u16| {
        let at = (u32::from(n) * 7919 % 16384) as u16;
        let places = [n.to_le_bytes(), at.to_le_bytes()].concat();
        [&places[..], &[0, n as u8, 0, 0, 0, 0, 0, 0, 0]].concat()
    };
    (0..16).map(|count| (0..count).flat_map(|n| patch(count * 37 + n)).collect()).collect()
}
