//! A cache of a few decompressed extents: without it, a reader of small pieces of a file would
//! decompress each extent many times.
//!
//! # Invariants
//! - The key of an extent is its address and the transaction that wrote it: when the address is
//!   used again, it is another extent.
//! - At most [`KEPT_EXTENTS`] are kept, each of at most 128 KiB.
//! - The lock is held only to look up and insert, never during I/O or decompression.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_format::Logical;
use parking_lot::Mutex;

/// At 128 KiB each, these are 8 MiB.
const KEPT_EXTENTS: usize = 64;

/// The extents that were decompressed last.
#[derive(Debug, Default)]
pub(crate) struct DecompressedExtents {
    /// The one used last is at the back.
    kept: Mutex<VecDeque<Kept>>,
    hits: AtomicU64,
    pub(crate) decompressions: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    identity: Identity,
    data: Arc<[u8]>,
}

/// An extent, and how to read it, as the file extent item says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) logical: Logical,
    pub(crate) generation: u64,
    pub(crate) ram_bytes: u64,
    pub(crate) has_checksums: bool,
}

impl DecompressedExtents {
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    pub(crate) fn decompressions(&self) -> u64 {
        self.decompressions.load(Relaxed)
    }

    pub(crate) fn get(&self, identity: Identity) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().rposition(|kept| kept.identity == identity)?;
        let found = kept.remove(at)?;
        let data = found.data.clone();
        kept.push_back(found);
        self.hits.fetch_add(1, Relaxed);
        Some(data)
    }

    pub(crate) fn put(&self, identity: Identity, data: Arc<[u8]>) {
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_EXTENTS {
            kept.pop_front();
        }
        kept.push_back(Kept { identity, data });
    }
}
