//! What an address of a device should have: a tree block, or a sector of data.

use larder_format::{Checksum, Logical, Physical};
use larder_volume::{BlockExpectation, CopyProblem, Volume};

use crate::batch::{Batch, Content, Piece};

/// A tree block or a sector of data, as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) len_bytes: u64,
    pub(crate) proof: Proof,
}

/// How its content is proved right.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// It is a tree block of this generation.
    Block { generation: u64 },
    /// It has this checksum.
    Sum(Box<[u8]>),
    /// Nothing does.
    Nothing,
}

impl Wanted {
    /// What should be at an offset of a piece, which is one of [`offsets`].
    pub(crate) fn at(batch: &Batch, piece: &Piece, offset: u64, volume: &Volume) -> Self {
        let sectorsize = u64::from(volume.sectorsize());
        let proof = match &piece.content {
            Content::Block { generation } => Proof::Block { generation: *generation },
            Content::Summed(sums) => {
                let sum_bytes = volume.checksum_type().size();
                let first = sums.start + (offset / sectorsize) as usize * sum_bytes;
                Proof::Sum(batch.sums[first..first + sum_bytes].into())
            }
            Content::Plain | Content::Parity(_) => Proof::Nothing,
        };
        Self {
            logical: piece.logical + offset,
            physical: piece.physical + offset,
            len_bytes: step(piece, sectorsize),
            proof,
        }
    }

    pub(crate) fn at_device(&self) -> Physical {
        Physical(self.physical)
    }

    /// Proves content right.
    pub(crate) fn prove(&self, bytes: &[u8], volume: &Volume) -> Result<(), CopyProblem> {
        match &self.proof {
            Proof::Block { generation } => {
                let generation = Some(*generation);
                let expected = BlockExpectation { generation, ..Default::default() };
                volume.verify_block(Logical(self.logical), &expected, bytes)
            }
            Proof::Sum(sum) => {
                let computed = volume.checksum_type().compute(bytes);
                if computed.as_bytes() == &sum[..] {
                    return Ok(());
                }
                let wanted = Checksum::from_stored(sum).unwrap_or(computed);
                Err(CopyProblem::Checksum { wanted, computed })
            }
            Proof::Nothing => Ok(()),
        }
    }
}

/// The offsets in a piece of what is right or wrong as a whole.
pub(crate) fn offsets(piece: &Piece, sectorsize: u64) -> impl Iterator<Item = u64> + use<> {
    (0..piece.len_bytes).step_by(step(piece, sectorsize) as usize)
}

fn step(piece: &Piece, sectorsize: u64) -> u64 {
    match piece.content {
        Content::Block { .. } | Content::Parity(_) => piece.len_bytes,
        Content::Summed(_) | Content::Plain => sectorsize,
    }
}
