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
        let first = ObjectId::first_number();
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
