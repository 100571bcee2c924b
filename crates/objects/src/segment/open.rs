//! The segment that is written.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::content::Unsent;
use crate::id::ObjectId;
use crate::map::Delta;

use super::{Deltas, seal};

/// Memory for the table of a segment.
const LIKELY_TABLE_BYTES: usize = 64 << 10;

/// A segment that takes content. Content that it holds already is
/// overwritten in place: no state refers to it before the segment is sealed.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) id: ObjectId,
    content: Arc<RwLock<Unsent>>,
    deltas: Deltas,
    most_bytes: usize,
}

impl OpenSegment {
    /// A segment that takes up to `most_bytes` of content.
    pub(crate) fn new(id: ObjectId, most_bytes: usize) -> Self {
        let content = Arc::new(RwLock::new(Unsent::Open(Vec::new())));
        Self { id, content, deltas: Deltas::default(), most_bytes }
    }

    /// The content, which readers share with the writer.
    pub(crate) fn content(&self) -> &Arc<RwLock<Unsent>> {
        &self.content
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }

    /// How much content it has.
    pub(crate) fn len_bytes(&self) -> usize {
        match &*self.content.read() {
            Unsent::Open(content) => content.len(),
            Unsent::Sealed(_) => unreachable!("it takes content"),
        }
    }

    /// How much it frees.
    pub(crate) fn freed_bytes(&self) -> u64 {
        self.deltas.freed_bytes()
    }

    /// Takes `bytes`, as many as fit, for the device from `start` on. Returns how many it took, and
    /// where they lie if the map must learn that.
    pub(crate) fn write(&mut self, start: u64, bytes: &[u8]) -> (usize, Option<u64>) {
        let mut content = self.content.write();
        let Unsent::Open(content) = &mut *content else { unreachable!("it takes content") };
        if let Some(offset) = self.deltas.offset_of(&(start..start + bytes.len() as u64)) {
            content[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            return (bytes.len(), None);
        }
        let taken = bytes.len().min(self.most_bytes - content.len());
        if taken == 0 {
            return (0, None);
        }
        if content.capacity() == 0 {
            // With its table, the segment stays where it is.
            content.reserve_exact(self.most_bytes + LIKELY_TABLE_BYTES);
        }
        let offset = content.len() as u64;
        content.extend_from_slice(&bytes[..taken]);
        self.deltas.set(start..start + taken as u64, Some(offset));
        (taken, Some(offset))
    }

    pub(crate) fn discard(&mut self, range: Range<u64>) {
        self.deltas.set(range, None);
    }

    /// What it changes. It takes no content any more.
    pub(crate) fn close(self) -> Closed {
        Closed { id: self.id, deltas: self.deltas.to_vec(), content: self.content }
    }
}

/// A segment that is complete.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) id: ObjectId,
    pub(crate) deltas: Vec<Delta>,
    content: Arc<RwLock<Unsent>>,
}

impl Closed {
    /// The content, which readers share with the writer.
    pub(crate) fn content(&self) -> &Arc<RwLock<Unsent>> {
        &self.content
    }

    /// A copy of the content.
    pub(crate) fn copy(&self) -> Bytes {
        match &*self.content.read() {
            Unsent::Open(content) => Bytes::copy_from_slice(content),
            Unsent::Sealed(_) => unreachable!("it is sealed once"),
        }
    }

    /// The object.
    pub(crate) fn seal(self) -> Bytes {
        let mut unsent = self.content.write();
        let Unsent::Open(content) = &mut *unsent else { unreachable!("it is sealed once") };
        let object = seal(self.id, std::mem::take(content), &self.deltas);
        *unsent = Unsent::Sealed(object.clone());
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each fsync makes a segment, and the cache keeps it.
    #[test]
    fn a_small_segment_takes_little_memory() {
        let mut segment = OpenSegment::new(ObjectId::new(1, 0), 8 << 20);
        assert_eq!(segment.write(0, &[7; 4096]), (4096, Some(0)));
        let object = segment.close().seal();
        let len_bytes = object.len();
        let memory = object.try_into_mut().expect("nothing else has it");
        assert!(memory.capacity() < 2 * len_bytes, "{} for {len_bytes}", memory.capacity());
    }
}
