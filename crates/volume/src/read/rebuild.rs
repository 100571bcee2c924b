//! Rebuilding from parity.

use crate::chunk::{Chunk, Segment};
use crate::read::CopyProblem;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn rebuild(
        &self,
        _chunk: &Chunk,
        _segment: &Segment,
        _attempt: usize,
        _buf: &mut [u8],
    ) -> Result<(), CopyProblem> {
        Err(CopyProblem::NotRebuildable)
    }
}
