//! The device's newest state, and the manifest in the store.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::head::Stored;
use crate::id::ObjectId;
use crate::manifest::Manifest;
use crate::map::{Delta, ObjectRecord};
use crate::states::State;
use crate::store::{Store, StoreError};

/// With more space that became free, too: a checkpoint is what lets it go.
const MOST_FREED_BYTES: u64 = 64 << 20;

/// A manifest that would name more segments becomes a checkpoint.
const MOST_TAIL: usize = 512;

/// Programs that sync much write much that they need for a few seconds only: the next commit of
/// the file system frees it.
const SETTLING_SECONDS: u64 = 60;

/// # Invariants
/// - `manifest` says what `stored` and the flushes after it in the store say together, and has the
///   segments that were adopted since.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(super) manifest: Manifest,
    pub(super) stored: Stored,
    /// The objects that the last checkpoint knows, in the order of their ids.
    pub(super) objects: Arc<Vec<ObjectRecord>>,
    /// The first flush after the manifest in the store.
    first_flush: ObjectId,
    /// Whether a segment was adopted since the checkpoint.
    has_adopted: bool,
    /// The last manifest of this writer is in the store, or on its way.
    pub(crate) is_closed: bool,
    /// Those of the last minute, and one before: what was there at that one has settled.
    checkpoints: VecDeque<State>,
}

impl Commit {
    pub(super) fn new(manifest: Manifest, stored: Stored, objects: Vec<ObjectRecord>) -> Self {
        let first_flush = manifest.next_flush;
        let checkpoints = VecDeque::from([State { time: 0, ..manifest.state() }]);
        Self {
            manifest,
            stored,
            objects: Arc::new(objects),
            first_flush,
            has_adopted: false,
            is_closed: false,
            checkpoints,
        }
    }

    /// The store has `manifest` now.
    pub(super) fn set_stored(&mut self, manifest: Manifest, stored: Stored) {
        self.first_flush = manifest.next_flush;
        (self.manifest, self.stored) = (manifest, stored);
    }

    /// Whether it is time to replace the manifest in the store.
    pub(super) fn is_manifest_due(&self, most_flushes: u64, most_ranges: usize) -> bool {
        let flushes = self.manifest.next_flush.raw() - self.first_flush.raw();
        flushes >= most_flushes || self.is_long(most_ranges)
    }

    /// Whether the next manifest is to have a checkpoint.
    pub(super) fn is_long(&self, most_ranges: usize) -> bool {
        let tail = &self.manifest.tail;
        let deltas: usize = tail.iter().map(|segment| segment.deltas.len()).sum();
        deltas > most_ranges || tail.len() > MOST_TAIL || self.freed_bytes() > MOST_FREED_BYTES
    }

    /// How much became free since the checkpoint.
    fn freed_bytes(&self) -> u64 {
        let deltas = self.manifest.tail.iter().flat_map(|segment| &segment.deltas);
        deltas.filter(|delta| delta.offset.is_none()).map(|delta| delta.len).sum()
    }

    /// Takes a segment with content that the checkpoint has, too. The caller has found that no other
    /// checkpoint followed.
    pub(crate) fn adopt(&mut self, id: ObjectId, len_bytes: u64, deltas: Vec<Delta>) {
        self.manifest.adopt(id, len_bytes, deltas);
        self.has_adopted = true;
    }

    pub(super) fn note_checkpoint(&mut self, state: State, objects: Vec<ObjectRecord>) {
        self.objects = Arc::new(objects);
        self.checkpoints.push_back(state);
        self.has_adopted = false;
    }

    /// The number of a state at the time `now`: what was written before it and is needed still will
    /// probably be needed for long.
    pub(super) fn settled(&mut self, now: u64) -> u64 {
        let is_old = |state: &State| now.saturating_sub(state.time) >= SETTLING_SECONDS;
        while self.checkpoints.get(1).is_some_and(is_old) {
            self.checkpoints.pop_front();
        }
        self.checkpoints.front().map_or(0, |state| state.number)
    }

    /// Makes sure that there is a copy of the manifest in the store. Returns whether there is.
    pub(super) fn is_copied(&mut self, store: &dyn Store) -> bool {
        let copied = self.copy(store);
        if let Err(error) = &copied {
            tracing::warn!("{error}; there is no copy of this manifest");
        }
        copied.is_ok()
    }

    /// Makes sure that there is a copy of the manifest in the store.
    pub(super) fn copy(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.stored.copy(store)
    }

    /// Whether a segment was adopted since the checkpoint.
    pub(super) fn has_adopted(&self) -> bool {
        self.has_adopted
    }
}
