//! Whether data is compressed when it is written back, and how.
//!
//! # Invariants
//! - Data that is overwritten in place, or has no checksums, is not compressed.
//! - A compressed extent takes at least one sector less than its data, an inline one at least a byte.

use larder_format::compression::{
    Algorithm, Compression, ExtentKind, MAX_UNCOMPRESSED_BYTES, is_worth_trying,
};
use larder_format::item::{DirEntries, InodeFlags};
use larder_format::{ItemType, Key, name_hash};

use super::node::{Node, NodeState};
use super::property::{COMPRESSION, USUAL_COMPRESSION, can_compress};
use super::stretch::Stretch;
use super::workshop::Workshop;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::parallel;

/// How data is compressed when it is written back: the kernel's mount options `compress` and
/// `compress-force`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCompression {
    /// Algorithm and level. A file's own property chooses another algorithm, at its usual level.
    pub compression: Compression,
    /// Everything is tried: also what looks as if it would not become smaller, and files that were found
    /// not to.
    pub force: bool,
}

/// How the data of one file is compressed.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    compression: Compression,
    force: bool,
    /// Data that does not become smaller says so about its file.
    gives_up: bool,
}

/// Up to 128 KiB of data.
pub(super) struct Piece<'a> {
    /// Where in the file it starts.
    pub(super) start: u64,
    /// In whole sectors.
    pub(super) data: Stretch<'a>,
    /// How many bytes of it the file has.
    pub(super) len: usize,
}

/// What became of a piece.
pub(super) enum Outcome {
    /// It is shorter now: whole sectors.
    Compressed(Vec<u8>),
    /// It was not tried.
    Left,
    /// It does not become shorter.
    Incompressible,
}

impl Filesystem {
    /// Compresses data that is written back from now on, unless its file says otherwise; `None` compresses
    /// that of files which ask for it.
    pub fn set_compression(&self, compression: Option<WriteCompression>) -> Result<()> {
        *self.writer()?.compression.write() = compression;
        Ok(())
    }

    /// How the data of a file, whose state is locked, is compressed, if it is.
    pub(super) fn compression_plan(&self, node: &Node, state: &NodeState) -> Result<Option<Plan>> {
        let flags = state.item.flags();
        let general = *self.writer()?.compression.read();
        let force = general.is_some_and(|general| general.force);
        let asks = flags.contains(InodeFlags::COMPRESS);
        let is_wanted = general.is_some() || asks;
        let is_refused = flags.contains(InodeFlags::NOCOMPRESS) && !force;
        if !can_compress(flags) || !is_wanted || is_refused {
            return Ok(None);
        }
        let own = if asks { own_algorithm(node)? } else { None };
        let compression = match (own, general) {
            (Some(own), Some(general)) if general.compression.algorithm() == own => {
                general.compression
            }
            (Some(own), _) => own.into(),
            (None, Some(general)) => general.compression,
            (None, None) => USUAL_COMPRESSION.into(),
        };
        Ok(Some(Plan { compression, force, gives_up: !force && own.is_none() }))
    }
}

impl Plan {
    pub(super) fn algorithm(&self) -> Algorithm {
        self.compression.algorithm()
    }

    /// Whether a file of which `outcomes` came is not tried again.
    pub(super) fn gives_up(&self, outcomes: &[Outcome]) -> bool {
        let is_bad = |outcome: &Outcome| matches!(outcome, Outcome::Incompressible);
        self.gives_up && outcomes.iter().any(is_bad)
    }

    /// Compresses pieces, by several threads.
    pub(super) fn compress(
        &self,
        pieces: &[Piece<'_>],
        sectorsize: u32,
        workshop: &Workshop,
    ) -> Vec<Outcome> {
        parallel::map(pieces, |piece| self.compress_piece(piece, sectorsize, workshop))
    }

    fn compress_piece(&self, piece: &Piece<'_>, sectorsize: u32, workshop: &Workshop) -> Outcome {
        let data = piece.data.joined();
        let input = &data[..piece.len];
        // One sector cannot become fewer.
        let is_tried = piece.len > sectorsize as usize && (self.force || is_worth_trying(input));
        if !is_tried {
            return Outcome::Left;
        }
        match self.stream(input, sectorsize, ExtentKind::Regular, workshop) {
            Some(mut stream) => {
                stream.resize(stream.len().next_multiple_of(sectorsize as usize), 0);
                Outcome::Compressed(stream)
            }
            None => Outcome::Incompressible,
        }
    }

    /// Compresses all data of a short file, to be kept in the tree, if it becomes shorter.
    pub(super) fn compress_inline(
        &self,
        data: &[u8],
        sectorsize: u32,
        workshop: &Workshop,
    ) -> Option<Vec<u8>> {
        let is_tried = self.force || is_worth_trying(data);
        is_tried.then(|| self.stream(data, sectorsize, ExtentKind::Inline, workshop)).flatten()
    }

    fn stream(
        &self,
        input: &[u8],
        sectorsize: u32,
        kind: ExtentKind,
        workshop: &Workshop,
    ) -> Option<Vec<u8>> {
        let mut output = vec![0; input.len()];
        let len = workshop.with_compressor(self.compression, |compressor| {
            compressor.compress(input, &mut output, sectorsize, kind)
        });
        output.truncate(len.expect("the input is no longer than an extent")?);
        output.shrink_to_fit();
        Some(output)
    }
}

/// The pieces of `data`, which is at `start` in a file of `size_bytes`.
pub(super) fn pieces<'a>(data: &Stretch<'a>, start: u64, size_bytes: u64) -> Vec<Piece<'a>> {
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

/// The algorithm that a file's property names.
fn own_algorithm(node: &Node) -> Result<Option<Algorithm>> {
    let key = Key::new(node.number(), ItemType::XATTR_ITEM, name_hash::dir_name(COMPRESSION));
    let item = node.tree().get(key)?.unwrap_or_default();
    for entry in DirEntries::new(&item) {
        let entry = entry.map_err(|problem| Error::item(node.tree().id(), key, problem))?;
        let is_named = |algorithm: &Algorithm| {
            entry.name == COMPRESSION && entry.data.starts_with(algorithm.name().as_bytes())
        };
        if let Some(algorithm) = Algorithm::ALL.into_iter().find(is_named) {
            return Ok(Some(algorithm));
        }
    }
    Ok(None)
}
