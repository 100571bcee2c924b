//! Streams of snapshots, cut into immutable parts, and a catalogue of them.
//!
//! ```text
//!   catalogue                     the streams that are there: replaced if it is unchanged
//!   streams/ID/NUMBER-CHECKSUM    the parts of a stream, in the order of their names
//!   indexes/ID-CHECKSUM           the checksums of a stream's parts
//! ```
//! An [`Upload`] registers its stream in the catalogue as an unfinished one, creates the parts and
//! then the index, and at last replaces the registration by the stream. When it is repeated, it
//! finds the registration, lists the parts that are there, and creates the others only.
//!
//! - [`Catalogue`]: its [`Stream`]s, the way to one of them ([`Catalogue::chain`]), [`prune()`].
//! - [`Upload`] is a [`Write`](std::io::Write), [`Download`] a [`Read`](std::io::Read). [`verify()`].
//!
//! # Invariants
//! - Parts and indexes are created once, and change only from a damaged content to the one that
//!   their names promise.
//! - A stream in the catalogue is complete: its index and all its parts are there.
//! - A sender chooses a random id, and enters it in the catalogue before it creates the first part.
//!   No sender enters an id again that has left the catalogue. So `prune` first lists the objects,
//!   then reads the catalogue, and deletes those listed objects that the catalogue does not need.
//! - No byte of a part is handed on before the whole part was compared with its checksum.
//! - A reader needs no listing.
//! - Memory is bounded: by [`Pace::at_once`] parts and the one that is being filled or read, and 32
//!   bytes for each part of the stream.

pub(crate) mod catalogue;
mod chain;
mod download;
mod in_order;
mod part;
mod prune;
mod upload;
mod verify;

pub(crate) use catalogue::NAME as CATALOGUE;
pub use catalogue::{Catalogue, Description, Name, Origin, Stream, StreamId, Unfinished};
pub use download::Download;
pub use prune::{Pruned, Pruning, prune};
pub use upload::{Begun, Upload, Uploaded};
pub use verify::{Finding, verify};

/// How large parts are, and how many move at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The length of the parts of a new stream. The last one may be shorter.
    pub part_bytes: usize,
    /// So many parts are on their way at once.
    pub at_once: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { part_bytes: 8 << 20, at_once: 8 }
    }
}
