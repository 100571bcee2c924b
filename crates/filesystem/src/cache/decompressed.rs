//! A cache of a few decompressed extents: without it, a reader of small pieces of a file would
//! decompress each extent many times.
//!
//! # Invariants
//! - The key of an extent is its address and the transaction that wrote it: when the address is
//!   used again, it is another extent. That is not so once extents move, which keep their
//!   transaction: then all are forgotten, and none comes in that a thread began to read before.
//! - At most [`KEPT_EXTENTS`] are kept, each of at most 128 KiB.
//! - The lock is held only to look up and insert, never during I/O or decompression.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use larder_format::Logical;
use parking_lot::Mutex;

/// At 128 KiB each, these are 8 MiB.
const KEPT_EXTENTS: usize = 64;

/// The extents that were decompressed last.
#[derive(Debug, Default)]
pub(crate) struct DecompressedExtents {
    /// The one used last is at the back.
    kept: Mutex<VecDeque<Kept>>,
    /// How often content has moved. Rises while `kept` is locked.
    moves: AtomicU64,
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

    /// To be asked for before an extent is looked up that is put here.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Acquire)
    }

    /// Keeps an extent, unless content has moved since `moves`.
    pub(crate) fn put(&self, identity: Identity, data: Arc<[u8]>, moves: u64) {
        let mut kept = self.kept.lock();
        if moves != self.moves() {
            return;
        }
        if kept.len() == KEPT_EXTENTS {
            kept.pop_front();
        }
        kept.push_back(Kept { identity, data });
    }

    /// Content has moved.
    pub(crate) fn forget_all(&self) {
        let mut kept = self.kept.lock();
        self.moves.fetch_add(1, Release);
        kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_from_before_content_moved() {
        let all = DecompressedExtents::default();
        let logical = Logical(1 << 20);
        let identity = Identity { logical, generation: 7, ram_bytes: 4, has_checksums: true };
        let moves = all.moves();
        all.put(identity, Arc::from([1; 4]), moves);
        assert!(all.get(identity).is_some());
        all.forget_all();
        assert!(all.get(identity).is_none());
        // A thread that had begun to read comes late.
        all.put(identity, Arc::from([1; 4]), moves);
        assert!(all.get(identity).is_none());
        all.put(identity, Arc::from([2; 4]), all.moves());
        assert_eq!(all.get(identity).as_deref(), Some(&[2; 4][..]));
    }
}
