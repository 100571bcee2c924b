//! Moving a chunk to other places on devices, or to another profile, while it is in use.
//!
//! The addresses of a chunk stay what they are. So nothing that refers to its content changes: no
//! tree block, no reference, no file extent, however many subvolumes share them.
//!
//! # Invariants
//! - A chunk that moves has two layouts: the one that is read, and the *other*. Every write goes to
//!   both from [`Volume::begin_move`] to [`Volume::end_move`]. So once all that was there when the
//!   move began is [copied](Volume::copy_to_other), both have the same content, and a crash finds
//!   whichever layout the last durable state names complete.
//! - A range is copied while no thread writes: what is read and written then is the newest content.
//! - A stripe that both layouts have at one place is written once.
//! - When [`Volume::end_move`] returns, no request uses the other layout any more: its places may
//!   get other content.
//! - One chunk of a volume moves at a time. A layout with parity can be read, and not be the other.

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use larder_format::Logical;

use crate::chunk::{Chunk, ChunkError, ChunkStripe};
use crate::geometry::Geometry;
use crate::volume::Volume;
use crate::write::WriteError;

/// How a range was copied to the other layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MovedRange {
    /// It was verified, or has no checksum.
    Sound,
    /// No copy of it fits its checksum. What one device has was copied, so that a reader finds the
    /// same.
    Damaged,
    /// No device returns it. A reader of the new layout finds zeros, which its checksum does not
    /// fit.
    Unreadable,
}

impl fmt::Display for MovedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sound => "sound",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
        })
    }
}

impl Volume {
    /// Begins to move the chunk that has the addresses of `other` there: from now on every write of
    /// it goes to both layouts.
    ///
    /// # Errors
    /// If there is no chunk with these addresses, or `other` has parity.
    ///
    /// # Panics
    /// If another chunk moves.
    pub fn begin_move(&self, other: Chunk) -> Result<(), ChunkError> {
        let refuse =
            |problem: &str| Err(ChunkError { logical: other.logical(), problem: problem.into() });
        let current = self.chunk_at(other.logical());
        let is_same = |current: &Arc<Chunk>| {
            (current.logical(), current.len_bytes()) == (other.logical(), other.len_bytes())
        };
        if !current.as_ref().is_some_and(is_same) {
            return refuse("there is none with these addresses to move");
        }
        if other.has_parity() {
            return refuse("a chunk cannot move to a layout with parity");
        }
        // Each write either ended before, and is copied, or begins after and goes to both.
        self.without_writes(|| {
            self.change_geometry(|next| {
                assert!(next.other_layout.is_none(), "one chunk moves at a time");
                next.other_layout = Some(Arc::new(other));
            });
        });
        Ok(())
    }

    /// Copies a range of the chunk that moves to its other layout, and to the twins of its
    /// devices. `read` reads the newest content
    /// into the buffer, and says how. Nothing is copied after an error of it.
    pub fn copy_to_other<E: From<WriteError>>(
        &self,
        logical: Logical,
        buf: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<MovedRange, E>,
    ) -> Result<MovedRange, E> {
        self.without_writes(|| {
            let moved = read(buf)?;
            let geometry = self.geometry();
            let current = geometry.chunk_of(logical, buf.len() as u64).map_err(WriteError::from)?;
            geometry.write_other_layout(current, logical, buf)?;
            geometry.write_twins(current, logical, buf);
            Ok(moved)
        })
    }

    /// Exchanges the layouts of the chunk that moves: from now on the other one is read, and is in
    /// [`Volume::chunks`].
    ///
    /// # Panics
    /// If no chunk moves.
    pub fn exchange_layouts(&self) {
        self.change_geometry(|next| {
            let other = next.other_layout.take().expect("a chunk moves");
            next.other_layout = next.exchange_chunk(other);
        });
    }

    /// Ends the move: the layout that is read is the only one from now on. Returns the other one when
    /// no request uses it any more; `None` if no chunk moves.
    pub fn end_move(&self) -> Option<Arc<Chunk>> {
        let end = || self.change_geometry(|next| next.other_layout.take());
        let other = self.without_writes(end);
        self.wait_for_earlier_requests();
        other
    }
}

impl Geometry {
    /// Writes a range of `chunk` to its other layout too, if the chunk moves.
    pub(crate) fn write_other_layout(
        &self,
        chunk: &Chunk,
        logical: Logical,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let is_its = |other: &&Arc<Chunk>| other.logical() == chunk.logical();
        let Some(other) = self.other_layout.as_ref().filter(is_its) else { return Ok(()) };
        let shares = |stripe: &ChunkStripe| {
            !chunk.is_striped() && !other.is_striped() && chunk.stripes().contains(stripe)
        };
        let mut rest = bytes;
        for segment in other.segments(logical, bytes.len() as u64) {
            let (part, after) = rest.split_at(segment.len_bytes as usize);
            rest = after;
            for address in other.addresses(&segment) {
                if shares(&other.stripes()[address.stripe]) {
                    continue;
                }
                self.write_to(address, &[IoSlice::new(part)])?;
            }
        }
        Ok(())
    }

    /// Whether the chunk moves.
    pub(crate) fn is_moving(&self, chunk: &Chunk) -> bool {
        self.other_layout.as_ref().is_some_and(|other| other.logical() == chunk.logical())
    }
}
