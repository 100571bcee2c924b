//! Content of segments and flushes: chunks of a fixed length, the latest used of them in memory, and
//! more on disk. A flush is one chunk, however long it is.
//!
//! # Invariants
//! - Chunks take at most the capacity, and those that are on their way at most what requests may
//!   take. Those that one request brought lie in one piece of memory, and go together.
//! - A chunk is here after it was compared with its checksum. Segments are immutable, so none
//!   becomes stale.
//! - Threads that need the same chunk share one request.

mod budget;
mod disk;
mod memory;
mod window;

use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::error::ObjectsError;
use crate::fetch::ATTEMPTS;
use crate::flush;
use crate::id::{Kind, ObjectId};
use crate::segment::pieces::{self, CHUNK_BYTES};
use crate::store::Store;
use crate::watch::Watch;

use budget::Budget;
pub(crate) use disk::DiskCache;
use memory::{Lookup, Memory};
use window::MOST_CHUNKS;

type ChunkKey = (ObjectId, u64);

/// The chunk in which byte `offset` of the content lies.
fn chunk_of(id: ObjectId, offset: u64) -> u64 {
    if id.kind() == Kind::Flush { 0 } else { offset / CHUNK_BYTES }
}

/// The chunks in which `content` lies.
pub(crate) fn chunks_of(id: ObjectId, content: Range<u64>) -> Range<u64> {
    chunk_of(id, content.start)..chunk_of(id, content.end.saturating_sub(1)) + 1
}

/// Recently used chunks of segments.
#[derive(Debug)]
pub(crate) struct Cache {
    on_disk: Option<DiskCache>,
    memory: Mutex<Memory>,
    arrived: Condvar,
    on_their_way: Budget,
    watch: Watch,
}

impl Cache {
    pub(crate) fn new(
        capacity_bytes: u64,
        request_bytes: u64,
        on_disk: Option<DiskCache>,
        watch: Watch,
    ) -> Self {
        let memory = Mutex::new(Memory::new(capacity_bytes, request_bytes));
        let on_their_way = Budget::new(request_bytes);
        Self { on_disk, memory, arrived: Condvar::new(), on_their_way, watch }
    }

    /// Fills `into` with the content of a segment from `offset` on.
    pub(crate) fn read(
        &self,
        store: &dyn Store,
        segment: ObjectId,
        mut offset: u64,
        mut into: &mut [u8],
    ) -> Result<(), ObjectsError> {
        while !into.is_empty() {
            let index = chunk_of(segment, offset);
            let within = offset - index * CHUNK_BYTES;
            let is_flush = segment.kind() == Kind::Flush;
            let chunk_bytes = if is_flush { u64::MAX } else { CHUNK_BYTES };
            let left = (chunk_bytes - within).min(into.len() as u64);
            let chunk = self.chunk(store, (segment, index), left)?;
            let found = chunk.get(within as usize..).unwrap_or_default();
            let len = found.len().min(into.len());
            if len == 0 {
                let name = segment.name();
                return Err(ObjectsError::damaged(store, &name, &"it is cut off"));
            }
            let (part, rest) = into.split_at_mut(len);
            part.copy_from_slice(&found[..len]);
            (into, offset) = (rest, offset + len as u64);
        }
        Ok(())
    }

    /// Takes a segment that has just been uploaded.
    pub(crate) fn keep(&self, segment: ObjectId, object: &Bytes) {
        let chunks: Vec<_> = pieces::checked(segment, 0, object).flatten().collect();
        self.memory.lock().put((segment, 0), &chunks);
    }

    /// Takes the content of a flush that the store has got just now.
    pub(crate) fn keep_flush(&self, flush: ObjectId, content: Bytes) {
        self.memory.lock().put((flush, 0), &[content]);
    }

    /// Fetches those of the chunks `wanted` of a segment that no thread has fetched, and some that
    /// follow them.
    pub(crate) fn prefetch(&self, store: &dyn Store, segment: ObjectId, wanted: Range<u64>) {
        let mut next = wanted.start;
        while next < wanted.end {
            let mut memory = self.memory.lock();
            if !memory.is_missing((segment, next)) {
                next += 1;
                continue;
            }
            let claimed = memory.claim_ahead((segment, next), wanted.end - next);
            drop(memory);
            next = claimed.end;
            // The reader that needs it will see the error.
            let _ = self.fetch(store, segment, claimed);
        }
    }

    /// Forgets chunks of a segment. Returns whether there were any.
    pub(crate) fn forget(&self, segment: ObjectId, chunks: Range<u64>) -> bool {
        let mut was_here = false;
        for index in chunks {
            was_here |= self.memory.lock().forget_chunk((segment, index));
            if let Some(disk) = &self.on_disk {
                was_here |= disk.forget((segment, index));
            }
        }
        was_here
    }

    /// A chunk, of which the caller reads so many bytes.
    fn chunk(
        &self,
        store: &dyn Store,
        key: ChunkKey,
        len_bytes: u64,
    ) -> Result<Bytes, ObjectsError> {
        let (segment, index) = key;
        let mut memory = self.memory.lock();
        loop {
            match memory.find(key, len_bytes) {
                Lookup::Here(content) => {
                    self.watch.note_found_in_memory(len_bytes);
                    return Ok(content);
                }
                Lookup::Coming => self.arrived.wait(&mut memory),
                Lookup::Nothing => break,
            }
        }
        let claimed = memory.claim_missing(key);
        drop(memory);
        let fetched = self.fetch(store, segment, claimed);
        if let Lookup::Here(content) = self.memory.lock().find(key, len_bytes) {
            return Ok(content);
        }
        fetched?;
        // With a tiny capacity it has gone already.
        let chunks = Self::get(store, segment, &(index..index + 1), 0)?;
        chunks
            .into_iter()
            .next()
            .ok_or_else(|| ObjectsError::damaged(store, &segment.name(), &"it is cut off"))
    }

    /// Fetches chunks that this thread has claimed, from the disk as far as it has them.
    fn fetch(
        &self,
        store: &dyn Store,
        segment: ObjectId,
        mut chunks: Range<u64>,
    ) -> Result<(), ObjectsError> {
        if let Some(disk) = &self.on_disk {
            while !chunks.is_empty()
                && let Some(content) = disk.get((segment, chunks.start))
            {
                self.watch.note_found_on_disk(content.len() as u64);
                let mut memory = self.memory.lock();
                memory.put((segment, chunks.start), std::slice::from_ref(&content));
                chunks.start += 1;
                if (content.len() as u64) < CHUNK_BYTES {
                    // The segment ends there, and servers refuse requests behind the end.
                    memory.give_up(segment, chunks.clone());
                    chunks.start = chunks.end;
                }
                drop(memory);
                self.arrived.notify_all();
            }
        }
        if chunks.is_empty() { Ok(()) } else { self.request(store, segment, chunks) }
    }

    /// Requests chunks that this thread has claimed.
    fn request(
        &self,
        store: &dyn Store,
        segment: ObjectId,
        chunks: Range<u64>,
    ) -> Result<(), ObjectsError> {
        let _room = self.on_their_way.take((chunks.end - chunks.start) * CHUNK_BYTES);
        // Servers send an object as a whole faster than a part, so the table may come along.
        let more = u64::from(chunks == (0..MOST_CHUNKS));
        let result = Self::get(store, segment, &chunks, more);
        let mut memory = self.memory.lock();
        if let Ok(found) = &result {
            memory.put((segment, chunks.start), found);
        }
        memory.give_up(segment, chunks.clone());
        drop(memory);
        self.arrived.notify_all();
        let found = result?;
        self.watch.note_fetched(found.iter().map(|chunk| chunk.len() as u64).sum());
        if let Some(disk) = &self.on_disk {
            for (index, chunk) in chunks.zip(found) {
                disk.put((segment, index), chunk);
            }
        }
        Ok(())
    }

    /// Gets chunks from the store, as far as the segment has them, and compares them with their
    /// checksums. The request asks for so many `more`.
    fn get(
        store: &dyn Store,
        segment: ObjectId,
        chunks: &Range<u64>,
        more: u64,
    ) -> Result<Vec<Bytes>, ObjectsError> {
        if segment.kind() == Kind::Flush {
            let content = flush::read(store, segment)?.content;
            return Ok(if chunks.start == 0 { vec![content] } else { Vec::new() });
        }
        let name = segment.name();
        let count = (chunks.end - chunks.start) as usize;
        let (mut wanted, mut found) = (chunks.start..chunks.end + more, Vec::with_capacity(count));
        let mut attempts = 0;
        loop {
            let bytes = store.get(&name, pieces::range_of(&wanted))?;
            let mut pieces = pieces::checked(segment, wanted.start, &bytes);
            let mut wrong = None;
            while found.len() < count && wrong.is_none() {
                match pieces.next() {
                    Some(Ok(chunk)) => found.push(chunk),
                    Some(Err(why)) => wrong = Some(why),
                    None => break,
                }
            }
            drop(pieces);
            let Some(why) = wrong else { return Ok(found) };
            attempts += 1;
            if attempts >= ATTEMPTS {
                return Err(ObjectsError::damaged(store, &name, &why));
            }
            tracing::warn!("{}/{name}: {why}; it is fetched again", store.name());
            wanted = chunks.start + found.len() as u64..chunks.end;
        }
    }
}
