//! Rebuilding a stripe from the other columns of its row.
//!
//! A column can be lost because its device is missing, fails or missed commits, or be left out
//! because it may be wrong: with RAID6 each of the other columns in turn, so that the checksum of
//! the result finds the one that silently changed.

use super::copy::Outdated;
use crate::chunk::{Chunk, Segment};
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::problem::CopyProblem;

/// The columns of a row that are not used to rebuild.
struct Lost {
    /// The columns, that of the segment first. No more than there are parities.
    columns: Vec<usize>,
}

impl Lost {
    fn contains(&self, column: usize) -> bool {
        self.columns.contains(&column)
    }
}

/// A column that could not be read.
struct Unreadable(usize);

impl Geometry {
    /// Rebuilds a segment from the rest of its row.
    ///
    /// With RAID6, `attempt` chooses which other column is left out as well: 0 is Q, 1 is P, then
    /// the other data columns follow.
    pub(super) fn rebuild(
        &self,
        chunk: &Chunk,
        segment: &Segment,
        attempt: usize,
        outdated: Outdated,
        buf: &mut [u8],
    ) -> Result<(), CopyProblem> {
        let left_out = match chunk.profile().parities() {
            2 => Some(left_out(chunk, segment.column, attempt)),
            _ => None,
        };
        let _row = self.lock_row(chunk, segment.row);
        match self.rebuild_locked(chunk, segment, left_out, Outdated::Lost, buf) {
            Err(CopyProblem::NotRebuildable) if outdated == Outdated::LastResort => {
                self.rebuild_locked(chunk, segment, left_out, outdated, buf)
            }
            rebuilt => rebuilt,
        }
    }

    /// Like [`Geometry::rebuild`], for a caller that has locked the row.
    pub(crate) fn rebuild_locked(
        &self,
        chunk: &Chunk,
        segment: &Segment,
        left_out: Option<usize>,
        outdated: Outdated,
        buf: &mut [u8],
    ) -> Result<(), CopyProblem> {
        let mut lost = Lost { columns: vec![segment.column] };
        lost.columns.extend(left_out);
        let missing = (0..chunk.stripes().len()).filter(|&column| {
            let devid = chunk.column_address(segment.row, column, 0).devid;
            self.device(devid).is_none_or(|device| device.is_missing())
                || outdated == Outdated::Lost && self.is_outdated(chunk, devid)
        });
        for column in missing {
            lose(chunk, &mut lost, column)?;
        }
        loop {
            match self.solve(chunk, segment, &lost, buf.len()) {
                Ok(rebuilt) => {
                    buf.copy_from_slice(&rebuilt);
                    return Ok(());
                }
                // Each turn loses one more column, and the number of parities is the limit.
                Err(Unreadable(column)) => lose(chunk, &mut lost, column)?,
            }
        }
    }

    /// Sums the columns that are not lost and solves for the segment's.
    fn solve(
        &self,
        chunk: &Chunk,
        segment: &Segment,
        lost: &Lost,
        len: usize,
    ) -> Result<Vec<u8>, Unreadable> {
        let (p_column, q_column) = (chunk.data_stripes(), chunk.data_stripes() + 1);
        let mut bytes = vec![0; len];
        let mut parity = Parity::new(len);
        let read = |column: usize, bytes: &mut [u8]| {
            let address = chunk.column_address(segment.row, column, segment.within_bytes);
            self.read_device(address, bytes).map_err(|_| Unreadable(column))
        };
        for column in (0..chunk.data_stripes()).rev() {
            if lost.contains(column) {
                parity.prepend(None);
            } else {
                read(column, &mut bytes)?;
                parity.prepend(Some(&bytes));
            }
        }
        let other = lost.columns.iter().copied().find(|c| *c != segment.column && *c < p_column);
        if other.is_some() || !lost.contains(p_column) {
            read(p_column, &mut bytes)?;
            parity.add_p(&bytes);
        }
        if other.is_none() && !lost.contains(p_column) {
            return Ok(parity.solve_with_p());
        }
        read(q_column, &mut bytes)?;
        parity.add_q(&bytes);
        Ok(match other {
            Some(other) => parity.solve_with_both(segment.column, other),
            None => parity.solve_with_q(segment.column),
        })
    }
}

/// The column that is left out along with `column` in this attempt at RAID6.
fn left_out(chunk: &Chunk, column: usize, attempt: usize) -> usize {
    let data = chunk.data_stripes();
    match attempt {
        0 => data + 1,
        1 => data,
        other => {
            let index = other - 2;
            if index < column { index } else { index + 1 }
        }
    }
}

fn lose(chunk: &Chunk, lost: &mut Lost, column: usize) -> Result<(), CopyProblem> {
    if !lost.contains(column) {
        lost.columns.push(column);
    }
    if lost.columns.len() <= chunk.profile().parities() as usize {
        Ok(())
    } else {
        Err(CopyProblem::NotRebuildable)
    }
}
