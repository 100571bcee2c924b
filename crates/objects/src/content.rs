//! Reading: from memory, from the cache, from the store.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::cache::{self, Cache};
use crate::error::ObjectsError;
use crate::id::ObjectId;
use crate::manifest::TailSegment;
use crate::map::{Checkpoint, Place, Recent, Source};
use crate::segment::pieces::{self, CHUNK_BYTES};
use crate::store::{Problem, Store};

/// How often a read looks for its content again. More often than that, the object is missing.
const MOST_LOOKS: u32 = 8;

/// A segment that is not in the store yet.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// Its content is written, or waits to be sealed.
    Open(Vec<u8>),
    /// It is on its way.
    Sealed(Bytes),
}

impl Unsent {
    fn copy(&self, from: u64, into: &mut [u8]) {
        match self {
            Self::Open(content) => into.copy_from_slice(&content[from as usize..][..into.len()]),
            Self::Sealed(object) => pieces::copy(object, from, into),
        }
    }
}

/// A range of the device, and where its content lies.
type Part = (Range<u64>, Option<Source>);

/// The device's content.
///
/// # Invariants
/// - A thread looks into `recent` first, then at the checkpoint. A new checkpoint is here before
///   `recent` forgets what it has: so each lookup finds each change in one of the two.
/// - A segment leaves `unsent` after the store has it.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) recent: Recent,
    pub(crate) checkpoint: RwLock<Arc<Checkpoint>>,
    pub(crate) unsent: RwLock<HashMap<ObjectId, Arc<RwLock<Unsent>>>>,
}

impl Content {
    /// A checkpoint, and what was written after it.
    pub(crate) fn with(
        store: &Arc<dyn Store>,
        checkpoint: Arc<Checkpoint>,
        cache: Arc<Cache>,
        tail: &[TailSegment],
    ) -> Self {
        let recent = Recent::new();
        for segment in tail {
            for delta in &segment.deltas {
                recent.set(delta.range(), Place { segment: segment.id, offset: delta.offset });
            }
        }
        let (store, checkpoint) = (Arc::clone(store), RwLock::new(checkpoint));
        Self { store, cache, recent, checkpoint, unsent: RwLock::default() }
    }

    /// Where the content of `range` lies, in order and without gaps; what lies nowhere is zeros.
    fn sources(&self, range: Range<u64>) -> Result<Vec<Part>, ObjectsError> {
        let recent = self.recent.within(range.clone());
        let checkpoint = Arc::clone(&*self.checkpoint.read());
        let mut found = Vec::new();
        let mut at = range.start;
        let ends = std::iter::once((range.end..range.end, None));
        let known = recent.into_iter().map(|(range, place)| (range, place.source()));
        for (known, source) in known.chain(ends) {
            if at < known.start {
                for extent in checkpoint.within(&*self.store, at..known.start)? {
                    if at < extent.start {
                        found.push((at..extent.start, None));
                    }
                    found.push((extent.start..extent.end(), Some(extent.source)));
                    at = extent.end();
                }
                if at < known.start {
                    found.push((at..known.start, None));
                }
            }
            if !known.is_empty() {
                found.push((known.clone(), source));
            }
            at = known.end;
        }
        Ok(found)
    }

    /// The first part of `range` that has content.
    pub(crate) fn first_within(
        &self,
        range: Range<u64>,
    ) -> Result<Option<Range<u64>>, ObjectsError> {
        let mut known = self.sources(range)?.into_iter().filter(|(_, source)| source.is_some());
        let Some((mut first, _)) = known.next() else { return Ok(None) };
        for (next, _) in known {
            if next.start != first.end {
                break;
            }
            first.end = next.end;
        }
        Ok(Some(first))
    }

    /// Fills `into` from `start` on.
    ///
    /// An object may be deleted between the moment at which this thread learns that content lies
    /// there, and its request: then the content lies elsewhere by now, and the thread looks again.
    pub(crate) fn read(&self, into: &mut [u8], start: u64) -> Result<(), ObjectsError> {
        for _ in 0..MOST_LOOKS {
            match self.try_read(into, start) {
                Err(ObjectsError::Store(error)) if error.problem == Problem::NotFound => {}
                result => return result,
            }
        }
        self.try_read(into, start)
    }

    fn try_read(&self, into: &mut [u8], start: u64) -> Result<(), ObjectsError> {
        let range = start..start + into.len() as u64;
        let mut into = into;
        for (part, source) in self.sources(range)? {
            let here;
            (here, into) = into.split_at_mut((part.end - part.start) as usize);
            match source {
                None => here.fill(0),
                Some(source) => self.read_segment(source, here)?,
            }
        }
        Ok(())
    }

    pub(crate) fn read_segment(&self, source: Source, into: &mut [u8]) -> Result<(), ObjectsError> {
        let Source { segment, offset } = source;
        let unsent = self.unsent.read().get(&segment).cloned();
        match unsent {
            Some(unsent) => unsent.read().copy(offset, into),
            None => self.cache.read(&*self.store, segment, offset, into)?,
        }
        Ok(())
    }

    /// What leads to the content of `range`: for each segment one request at most, in the order of
    /// the device, as far as this is known without requests that fail.
    pub(crate) fn wanted(&self, range: Range<u64>) -> Vec<Wanted> {
        let mut wanted: Vec<Wanted> = Vec::new();
        // The reader will see the error.
        for (part, source) in self.sources(range).unwrap_or_default() {
            let Some(Source { segment, offset }) = source else { continue };
            let chunks = cache::chunks_of(segment, offset..offset + (part.end - part.start));
            match wanted.iter_mut().find(|it| it.segment == segment && it.is_near(&chunks)) {
                Some(it) => {
                    it.chunks.start = it.chunks.start.min(chunks.start);
                    it.chunks.end = it.chunks.end.max(chunks.end);
                }
                None => wanted.push(Wanted { segment, chunks }),
            }
        }
        wanted
    }

    /// Forgets the copies of what leads to the content of `range`. Returns whether there were any.
    pub(crate) fn forget(&self, range: Range<u64>) -> bool {
        let wanted = self.wanted(range);
        let unsent = self.unsent.read();
        let in_store = wanted.iter().filter(|wanted| !unsent.contains_key(&wanted.segment));
        let forget = |wanted: &Wanted| self.cache.forget(wanted.segment, wanted.chunks.clone());
        in_store.filter(|wanted| forget(wanted)).count() > 0
    }

    /// Fetches content that will be read soon.
    pub(crate) fn prefetch(&self, wanted: &Wanted) {
        if !self.unsent.read().contains_key(&wanted.segment) {
            self.cache.prefetch(&*self.store, wanted.segment, wanted.chunks.clone());
        }
    }
}

/// To fetch so much for nothing takes less time than another request.
const GAP_CHUNKS: u64 = (1 << 20) / CHUNK_BYTES;

/// Chunks of a segment that will be read soon.
#[derive(Debug)]
pub(crate) struct Wanted {
    segment: ObjectId,
    chunks: Range<u64>,
}

impl Wanted {
    fn is_near(&self, chunks: &Range<u64>) -> bool {
        self.chunks.start <= chunks.end + GAP_CHUNKS && chunks.start <= self.chunks.end + GAP_CHUNKS
    }
}
