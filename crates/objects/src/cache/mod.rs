//! Content of segments: chunks of a fixed length, the latest used of them in memory, and more on
//! disk.
//!
//! # Invariants
//! - Chunks take at most the capacity, and those that are being fetched one fetch for each thread
//!   more.
//! - Segments are immutable, so no chunk becomes stale.
//! - Threads that need the same chunk share one request.

mod disk;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::id::{Kind, ObjectId};
use crate::store::{Store, StoreError};

pub use disk::CacheFolder;
pub(crate) use disk::DiskCache;
use window::{MOST_CHUNKS, Window};

pub(crate) const CHUNK_BYTES: u64 = 1 << 20;

type ChunkKey = (ObjectId, u64);

/// Recently used chunks of segments.
#[derive(Debug)]
pub(crate) struct Cache {
    capacity_bytes: u64,
    on_disk: Option<DiskCache>,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<ChunkKey, Chunk>,
    /// By the time of their last use.
    by_use: BTreeMap<u64, ChunkKey>,
    clock: u64,
    bytes: u64,
    window: Window,
}

#[derive(Debug)]
enum Chunk {
    /// A thread fetches it.
    Coming,
    Here {
        content: Bytes,
        used: u64,
        is_fresh: bool,
    },
}

impl Cache {
    pub(crate) fn new(capacity_bytes: u64, on_disk: Option<DiskCache>) -> Self {
        Self { capacity_bytes, on_disk, state: Mutex::default(), arrived: Condvar::new() }
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
            let chunk = self.chunk(store, (segment, index))?;
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
        let mut state = self.state.lock();
        for (index, part) in content.chunks(CHUNK_BYTES as usize).enumerate() {
            let key = (segment, index as u64);
            state.put(key, Bytes::copy_from_slice(part), false, self.capacity_bytes);
        }
    }

    /// Fetches those of the chunks `wanted` of a segment that no thread has fetched, and some that
    /// follow them.
    pub(crate) fn prefetch(&self, store: &dyn Store, segment: ObjectId, wanted: Range<u64>) {
        let mut next = wanted.start;
        while next < wanted.end {
            let mut state = self.state.lock();
            if state.chunks.contains_key(&(segment, next)) {
                next += 1;
                continue;
            }
            let needed = (wanted.end - next).next_power_of_two().min(MOST_CHUNKS);
            let window = state.window.next().max(needed);
            let claimed = state.claim(segment, next, window);
            drop(state);
            next = claimed.end;
            // The reader that needs it will see the error.
            let _ = self.fetch(store, segment, claimed);
        }
    }

    fn chunk(&self, store: &dyn Store, key: ChunkKey) -> Result<Bytes, StoreError> {
        let (segment, index) = key;
        let mut state = self.state.lock();
        loop {
            match state.chunks.get(&key) {
                Some(Chunk::Here { .. }) => return Ok(state.touch(key)),
                Some(Chunk::Coming) => self.arrived.wait(&mut state),
                None => break,
            }
        }
        let window = state.window.next();
        let claimed = state.claim(segment, index, window);
        drop(state);
        self.fetch(store, segment, claimed)?;
        let mut state = self.state.lock();
        // With a tiny capacity it may have gone already; then this thread fetches it again.
        if matches!(state.chunks.get(&key), Some(Chunk::Here { .. })) {
            return Ok(state.touch(key));
        }
        drop(state);
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
                let mut state = self.state.lock();
                state.put((segment, chunks.start), content, false, self.capacity_bytes);
                drop(state);
                self.arrived.notify_all();
                chunks.start += 1;
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
        let bytes = chunks.start * CHUNK_BYTES..chunks.end * CHUNK_BYTES;
        let result = store.get(&Kind::Segment.name(segment), bytes);
        let mut state = self.state.lock();
        for index in chunks.clone() {
            state.chunks.remove(&(segment, index));
        }
        let result = result.map(|content| {
            let parts = content.chunks(CHUNK_BYTES as usize);
            for (index, part) in chunks.zip(parts) {
                // A part of the whole would keep all of it in memory.
                let part = Bytes::copy_from_slice(part);
                if let Some(disk) = &self.on_disk {
                    disk.put((segment, index), part.clone());
                }
                state.window.note_fetched();
                state.put((segment, index), part, true, self.capacity_bytes);
            }
        });
        drop(state);
        self.arrived.notify_all();
        result
    }
}

fn cut_off(store: &dyn Store, segment: ObjectId) -> StoreError {
    let name = Kind::Segment.name(segment);
    StoreError::new(crate::store::Problem::Other, store.name(), &name, "it is cut off")
}

impl State {
    /// The chunks around `chunk`, as many as `window` at places that it divides, that nobody has or
    /// fetches: the caller fetches them. A walk over a tree wants the content of a segment in
    /// another order than it lies there.
    fn claim(&mut self, segment: ObjectId, chunk: u64, window: u64) -> Range<u64> {
        let is_missing = |index: &u64| !self.chunks.contains_key(&(segment, *index));
        let first = chunk - chunk % window;
        let before = (first..chunk).rev().take_while(is_missing).count() as u64;
        let after = (chunk..first + window).take_while(is_missing).count() as u64;
        for index in chunk - before..chunk + after {
            self.chunks.insert((segment, index), Chunk::Coming);
        }
        chunk - before..chunk + after
    }

    fn put(&mut self, key: ChunkKey, content: Bytes, is_fresh: bool, capacity_bytes: u64) {
        self.clock += 1;
        self.bytes += content.len() as u64;
        let chunk = Chunk::Here { content, used: self.clock, is_fresh };
        if let Some(Chunk::Here { content, used, .. }) = self.chunks.insert(key, chunk) {
            self.bytes -= content.len() as u64;
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.clock, key);
        while self.bytes > capacity_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some(Chunk::Here { content, is_fresh, .. }) = self.chunks.remove(&oldest) {
                self.bytes -= content.len() as u64;
                if is_fresh {
                    self.window.note_wasted();
                }
            }
        }
    }

    fn touch(&mut self, key: ChunkKey) -> Bytes {
        self.clock += 1;
        let Some(Chunk::Here { content, used, is_fresh }) = self.chunks.get_mut(&key) else {
            unreachable!("the caller has seen it under the same lock")
        };
        if std::mem::take(is_fresh) {
            self.window.note_used();
        }
        self.by_use.remove(used);
        *used = self.clock;
        self.by_use.insert(self.clock, key);
        content.clone()
    }
}
