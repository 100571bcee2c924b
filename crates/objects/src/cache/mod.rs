//! Content of segments: chunks of a fixed length, the latest used of them in memory, and more on
//! disk.
//!
//! # Invariants
//! - Chunks take at most the capacity, and those that are on their way at most what requests may
//!   take. Those that one request brought lie in one piece of memory, and go together.
//! - Segments are immutable, so no chunk becomes stale.
//! - Threads that need the same chunk share one request.

mod budget;
mod disk;
mod memory;
mod window;

use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::id::{Kind, ObjectId};
use crate::store::{Store, StoreError};

use budget::Budget;
pub use disk::CacheFolder;
pub(crate) use disk::DiskCache;
use memory::{Lookup, Memory};
use window::MOST_CHUNKS;

pub(crate) const CHUNK_BYTES: u64 = 1 << 20;

type ChunkKey = (ObjectId, u64);

/// Recently used chunks of segments.
#[derive(Debug)]
pub(crate) struct Cache {
    on_disk: Option<DiskCache>,
    memory: Mutex<Memory>,
    arrived: Condvar,
    on_their_way: Budget,
}

impl Cache {
    pub(crate) fn new(capacity_bytes: u64, request_bytes: u64, on_disk: Option<DiskCache>) -> Self {
        let memory = Mutex::new(Memory::new(capacity_bytes, request_bytes));
        let on_their_way = Budget::new(request_bytes);
        Self { on_disk, memory, arrived: Condvar::new(), on_their_way }
    }

    /// Fills `into` with the content of a segment from `offset` on.
    pub(crate) fn read(
        &self,
        store: &dyn Store,
        segment: ObjectId,
        mut offset: u64,
        mut into: &mut [u8],
    ) -> Result<(), StoreError> {
        while !into.is_empty() {
            let (index, within) = (offset / CHUNK_BYTES, offset % CHUNK_BYTES);
            let left = (CHUNK_BYTES - within).min(into.len() as u64);
            let chunk = self.chunk(store, (segment, index), left)?;
            let found = chunk.get(within as usize..).unwrap_or_default();
            let len = found.len().min(into.len());
            if len == 0 {
                return Err(cut_off(store, segment));
            }
            let (part, rest) = into.split_at_mut(len);
            part.copy_from_slice(&found[..len]);
            (into, offset) = (rest, offset + len as u64);
        }
        Ok(())
    }

    /// Takes the content of a segment that has just been uploaded.
    pub(crate) fn keep(&self, segment: ObjectId, content: &Bytes) {
        self.memory.lock().put((segment, 0), content, false);
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
            let needed = (wanted.end - next).next_power_of_two();
            let claimed = memory.claim((segment, next), needed);
            drop(memory);
            next = claimed.end;
            // The reader that needs it will see the error.
            let _ = self.fetch(store, segment, claimed);
        }
    }

    /// A chunk, of which the caller reads so many bytes.
    fn chunk(&self, store: &dyn Store, key: ChunkKey, len_bytes: u64) -> Result<Bytes, StoreError> {
        let (segment, index) = key;
        let mut memory = self.memory.lock();
        loop {
            match memory.find(key, len_bytes) {
                Lookup::Here(content) => return Ok(content),
                Lookup::Coming => self.arrived.wait(&mut memory),
                Lookup::Nothing => break,
            }
        }
        let claimed = memory.claim(key, 1);
        drop(memory);
        let fetched = self.fetch(store, segment, claimed);
        if let Lookup::Here(content) = self.memory.lock().find(key, len_bytes) {
            return Ok(content);
        }
        fetched?;
        // With a tiny capacity it has gone already.
        let start = index * CHUNK_BYTES;
        store.get(&Kind::Segment.name(segment), start..start + CHUNK_BYTES)
    }

    /// Fetches chunks that this thread has claimed, from the disk as far as it has them.
    fn fetch(
        &self,
        store: &dyn Store,
        segment: ObjectId,
        mut chunks: Range<u64>,
    ) -> Result<(), StoreError> {
        if let Some(disk) = &self.on_disk {
            while !chunks.is_empty()
                && let Some(content) = disk.get((segment, chunks.start))
            {
                let mut memory = self.memory.lock();
                memory.put((segment, chunks.start), &content, false);
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
    ) -> Result<(), StoreError> {
        let wanted = chunks.start * CHUNK_BYTES..chunks.end * CHUNK_BYTES;
        // Servers send an object as a whole faster than a part, so the table may come along.
        let is_all = chunks == (0..MOST_CHUNKS);
        let _room = self.on_their_way.take(wanted.end - wanted.start);
        let asked = wanted.start..wanted.end + if is_all { CHUNK_BYTES } else { 0 };
        let result = store.get(&Kind::Segment.name(segment), asked);
        let len = |content: &Bytes| content.len().min((wanted.end - wanted.start) as usize);
        let result = result.map(|content| content.slice(..len(&content)));
        let mut memory = self.memory.lock();
        memory.give_up(segment, chunks.clone());
        if let Ok(content) = &result {
            memory.put((segment, chunks.start), content, true);
        }
        drop(memory);
        self.arrived.notify_all();
        let content = result?;
        if let Some(disk) = &self.on_disk {
            for (index, part) in chunks.zip(content.chunks(CHUNK_BYTES as usize)) {
                disk.put((segment, index), content.slice_ref(part));
            }
        }
        Ok(())
    }
}

fn cut_off(store: &dyn Store, segment: ObjectId) -> StoreError {
    let name = Kind::Segment.name(segment);
    StoreError::new(crate::store::Problem::Other, store.name(), &name, "it is cut off")
}
