//! What is read at once: a run of addresses of a device, and what should be there.

use std::ops::Range;

use larder_volume::CopyProblem;

/// The most bytes that are read at once.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// A gap up to this is read too, since that takes less than a read of its own.
const GAP_BYTES: u64 = 32 << 10;

/// Something of a chunk on a device.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) len_bytes: u64,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A tree block of this generation.
    Block { generation: u64 },
    /// Data with checksums: where they are in [`Batch::sums`].
    Summed(Range<usize>),
    /// Data without.
    Plain,
    /// Parity: the n-th of its row, which begins at the logical address.
    Parity(usize),
}

/// A run of addresses of a device.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) pieces: Vec<Piece>,
    /// The checksums of its data.
    pub(crate) sums: Vec<u8>,
    /// As [`Counters`](crate::Counters) has them.
    pub(crate) data_extents: u64,
    pub(crate) tree_extents: u64,
    /// Its bytes, once they are read.
    pub(crate) bytes: Vec<u8>,
    /// Why its bytes could not be read at once.
    pub(crate) problem: Option<CopyProblem>,
}

impl Batch {
    pub(crate) fn start(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.physical)
    }

    pub(crate) fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.physical + piece.len_bytes)
    }

    /// How many of so many bytes at an address can be read with it: none, if they are too far away
    /// or it is full.
    pub(crate) fn room_at(&self, physical: u64) -> u64 {
        if self.pieces.is_empty() {
            return BATCH_BYTES;
        }
        let gap = physical.checked_sub(self.end()).filter(|gap| *gap <= GAP_BYTES);
        let full = self.start() + BATCH_BYTES;
        gap.map_or(0, |_| full.saturating_sub(physical))
    }

    /// The bytes of a piece.
    pub(crate) fn bytes_of(&self, piece: &Piece) -> &[u8] {
        let start = (piece.physical - self.start()) as usize;
        &self.bytes[start..start + piece.len_bytes as usize]
    }

    /// Makes it empty, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.sums.clear();
        (self.data_extents, self.tree_extents, self.problem) = (0, 0, None);
    }
}
