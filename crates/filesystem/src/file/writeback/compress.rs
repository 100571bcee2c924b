//! Whether data is compressed when it is written back, and how.
//!
//! # Invariants
//! - Data that is overwritten in place, or has no checksums, is not compressed.
//! - A compressed extent takes at least one sector less than its data, an inline one at least a byte.

use std::cell::RefCell;

use larder_format::compression::{
    Algorithm, Compression, Compressor, ExtentKind, MAX_UNCOMPRESSED_BYTES, is_worth_trying,
};
use larder_format::item::{DirEntries, InodeFlags};
use larder_format::{ItemType, Key, name_hash};

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::inode::live::{InodeState, LiveInode};
use crate::parallel;
use crate::xattr::property::{COMPRESSION, USUAL_COMPRESSION, can_compress};

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
pub(crate) struct Plan {
    compression: Compression,
    force: bool,
    /// Data that does not become smaller says so about its file.
    gives_up: bool,
}

/// Up to 128 KiB of data.
pub(crate) struct Piece<'a> {
    /// Where in the file it starts.
    pub(crate) start: u64,
    /// In whole sectors.
    pub(crate) data: &'a [u8],
    /// How many bytes of it the file has.
    pub(crate) len: usize,
}

/// What became of a piece.
pub(crate) enum Outcome {
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
    pub(crate) fn compression_plan(
        &self,
        live: &LiveInode,
        state: &InodeState,
    ) -> Result<Option<Plan>> {
        let flags = state.item.flags();
        let general = *self.writer()?.compression.read();
        let force = general.is_some_and(|general| general.force);
        let asks = flags.contains(InodeFlags::COMPRESS);
        let is_wanted = general.is_some() || asks;
        let is_refused = flags.contains(InodeFlags::NOCOMPRESS) && !force;
        if !can_compress(flags) || !is_wanted || is_refused {
            return Ok(None);
        }
        let own = if asks { own_algorithm(live)? } else { None };
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
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.compression.algorithm()
    }

    /// Whether a file of which `outcomes` came is not tried again.
    pub(crate) fn gives_up(&self, outcomes: &[Outcome]) -> bool {
        let is_bad = |outcome: &Outcome| matches!(outcome, Outcome::Incompressible);
        self.gives_up && outcomes.iter().any(is_bad)
    }

    /// Compresses pieces, by several threads.
    pub(crate) fn compress(&self, pieces: &[Piece<'_>], sectorsize: u32) -> Vec<Outcome> {
        parallel::map(pieces, |piece| self.compress_piece(piece, sectorsize))
    }

    fn compress_piece(&self, piece: &Piece<'_>, sectorsize: u32) -> Outcome {
        let input = &piece.data[..piece.len];
        // One sector cannot become fewer.
        let is_tried = piece.len > sectorsize as usize && (self.force || is_worth_trying(input));
        if !is_tried {
            return Outcome::Left;
        }
        match self.stream(input, sectorsize, ExtentKind::Regular) {
            Some(mut stream) => {
                stream.resize(stream.len().next_multiple_of(sectorsize as usize), 0);
                Outcome::Compressed(stream)
            }
            None => Outcome::Incompressible,
        }
    }

    /// Compresses all data of a short file, to be kept in the tree, if it becomes shorter.
    pub(crate) fn compress_inline(&self, data: &[u8], sectorsize: u32) -> Option<Vec<u8>> {
        let is_tried = self.force || is_worth_trying(data);
        is_tried.then(|| self.stream(data, sectorsize, ExtentKind::Inline)).flatten()
    }

    fn stream(&self, input: &[u8], sectorsize: u32, kind: ExtentKind) -> Option<Vec<u8>> {
        thread_local! {
            /// A thread's state for compressing, which is costly to set up.
            static COMPRESSOR: RefCell<Option<Compressor>> = const { RefCell::new(None) };
        }
        COMPRESSOR.with_borrow_mut(|compressor| {
            if compressor.as_ref().is_none_or(|known| known.compression() != self.compression) {
                *compressor = Some(Compressor::new(self.compression));
            }
            let compressor = compressor.as_mut().expect("it was just made");
            let mut output = vec![0; input.len()];
            let len = compressor.compress(input, &mut output, sectorsize, kind);
            let len = len.expect("the input is no longer than an extent")?;
            output.truncate(len);
            Some(output)
        })
    }
}

/// The pieces of `data`, which is at `start` in a file of `size_bytes`.
pub(crate) fn pieces(data: &[u8], start: u64, size_bytes: u64) -> Vec<Piece<'_>> {
    let starts = (start..).step_by(MAX_UNCOMPRESSED_BYTES);
    starts
        .zip(data.chunks(MAX_UNCOMPRESSED_BYTES))
        .map(|(start, data)| {
            let within = size_bytes.saturating_sub(start).min(data.len() as u64) as usize;
            Piece { start, data, len: within }
        })
        .collect()
}

/// The algorithm that a file's property names.
fn own_algorithm(live: &LiveInode) -> Result<Option<Algorithm>> {
    let key = Key::new(live.number(), ItemType::XATTR_ITEM, name_hash::dir_name(COMPRESSION));
    let item = live.tree().get(key)?.unwrap_or_default();
    for entry in DirEntries::new(&item) {
        let entry = entry.map_err(|problem| Error::item(live.tree().id(), key, problem))?;
        let is_named = |algorithm: &Algorithm| {
            entry.name == COMPRESSION && entry.data.starts_with(algorithm.name().as_bytes())
        };
        if let Some(algorithm) = Algorithm::ALL.into_iter().find(is_named) {
            return Ok(Some(algorithm));
        }
    }
    Ok(None)
}
