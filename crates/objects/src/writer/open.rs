//! What is written, before the store has it.

use std::sync::{Arc, OnceLock};

use crate::id::ObjectId;
use crate::map::Delta;
use crate::segment::OpenSegment;

#[derive(Debug)]
pub(crate) struct Open {
    pub(super) segment: OpenSegment,
    epoch: u32,
    next_number: u32,
    /// Since the last flush, in the order of their changes.
    pub(super) sealed: Vec<Sealed>,
}

/// A segment that is complete.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) id: ObjectId,
    /// Its length, once the store has it.
    pub(super) len_bytes: Arc<OnceLock<u64>>,
    pub(super) deltas: Vec<Delta>,
}

impl Open {
    pub(super) fn new(epoch: u32, segment_bytes: usize) -> Self {
        let first = first_number();
        let segment = OpenSegment::new(ObjectId::new(epoch, first), segment_bytes);
        Self { segment, epoch, next_number: first + 1, sealed: Vec::new() }
    }

    pub(crate) fn new_id(&mut self) -> ObjectId {
        let id = ObjectId::new(self.epoch, self.next_number);
        self.next_number += 1;
        id
    }

    /// Whether nothing was written since the last flush.
    pub(super) fn is_empty(&self) -> bool {
        self.segment.is_empty() && self.sealed.is_empty()
    }
}

/// The number of a writer's first object, at random. A store that an administrator sets back to an
/// earlier state sees the same epochs again, but not the same names: neither its own newer objects
/// nor a cache elsewhere pass for what a new writer creates.
pub(crate) fn first_number() -> u32 {
    let random = uuid::Uuid::new_v4();
    u32::from_le_bytes(random.as_bytes()[..4].try_into().expect("4 bytes")) >> 2
}
