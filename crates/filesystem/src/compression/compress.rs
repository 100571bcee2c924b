//! Whether and how writeback compresses data.
//!
//! # Invariants
//! - Data that is overwritten in place, or has no checksums, is not compressed.
//! - A compressed extent takes at least one sector less than its data, an inline one at least a
//!   byte.

use larder_format::compression::{
    Algorithm, Compression, ExtentKind, MAX_UNCOMPRESSED_BYTES, is_worth_trying,
};

use crate::cache::slices::Slices;
use crate::compression::compressors::Compressors;

/// How writeback compresses data: the kernel's mount options `compress` and `compress-force`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCompression {
    /// Algorithm and level. A file's own property selects another algorithm, at its default level.
    pub compression: Compression,
    /// Compresses everything: also data that looks incompressible, and files that proved to be.
    pub force: bool,
}

/// How the data of one file is compressed.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) compression: Compression,
    pub(crate) force: bool,
    /// Whether data that does not become smaller marks its file as incompressible.
    pub(crate) gives_up: bool,
}

/// Up to 128 KiB of data.
pub(crate) struct Piece<'a> {
    /// Its offset in the file.
    pub(crate) start: u64,
    /// In whole sectors.
    pub(crate) data: Slices<'a>,
    /// How many bytes of it lie in the file.
    pub(crate) len: usize,
}

/// The result for a piece.
pub(crate) enum Outcome {
    /// It is shorter now: whole sectors.
    Compressed(Vec<u8>),
    /// It was not tried.
    Left,
    /// It does not become shorter.
    Incompressible,
}

impl Plan {
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.compression.algorithm()
    }

    /// Whether a file with these `outcomes` counts as incompressible.
    pub(crate) fn gives_up(&self, outcomes: &[Outcome]) -> bool {
        let is_bad = |outcome: &Outcome| matches!(outcome, Outcome::Incompressible);
        self.gives_up && outcomes.iter().any(is_bad)
    }

    /// Compresses pieces, by several threads.
    pub(crate) fn compress(
        &self,
        pieces: &[Piece<'_>],
        sectorsize: u32,
        compressors: &Compressors,
    ) -> Vec<Outcome> {
        larder_parallel::map(pieces, |piece| self.compress_piece(piece, sectorsize, compressors))
    }

    fn compress_piece(
        &self,
        piece: &Piece<'_>,
        sectorsize: u32,
        compressors: &Compressors,
    ) -> Outcome {
        let data = piece.data.joined();
        let input = &data[..piece.len];
        // A single sector cannot become fewer.
        let is_tried = piece.len > sectorsize as usize && (self.force || is_worth_trying(input));
        if !is_tried {
            return Outcome::Left;
        }
        match self.stream(input, sectorsize, ExtentKind::Regular, compressors) {
            Some(mut stream) => {
                stream.resize(stream.len().next_multiple_of(sectorsize as usize), 0);
                Outcome::Compressed(stream)
            }
            None => Outcome::Incompressible,
        }
    }

    /// Compresses all data of a short file, to be inline, if it becomes shorter.
    pub(crate) fn compress_inline(
        &self,
        data: &[u8],
        sectorsize: u32,
        compressors: &Compressors,
    ) -> Option<Vec<u8>> {
        let is_tried = self.force || is_worth_trying(data);
        is_tried.then(|| self.stream(data, sectorsize, ExtentKind::Inline, compressors)).flatten()
    }

    fn stream(
        &self,
        input: &[u8],
        sectorsize: u32,
        kind: ExtentKind,
        compressors: &Compressors,
    ) -> Option<Vec<u8>> {
        let mut output = vec![0; input.len()];
        let len = compressors.with_compressor(self.compression, |compressor| {
            compressor.compress(input, &mut output, sectorsize, kind)
        });
        output.truncate(len.expect("the input is no longer than an extent")?);
        output.shrink_to_fit();
        Some(output)
    }
}

/// The pieces of `data`, which is at `start` in a file of `size_bytes`.
pub(crate) fn pieces<'a>(data: &Slices<'a>, start: u64, size_bytes: u64) -> Vec<Piece<'a>> {
    let piece_bytes = MAX_UNCOMPRESSED_BYTES as u64;
    (0..data.len_bytes())
        .step_by(MAX_UNCOMPRESSED_BYTES)
        .map(|at| {
            let (start, data) = (start + at, data.part(at, piece_bytes));
            let within = size_bytes.saturating_sub(start).min(data.len_bytes()) as usize;
            Piece { start, data, len: within }
        })
        .collect()
}
