//! The chunks in memory.
//!
//! # Invariants
//! - `bytes` is the sum of the lengths of all batches, and at most the capacity when a call returns.
//! - What was read to its end goes first: a stream of reads takes the memory that it has used
//!   before, and leaves the rest of the cache alone.
//! - Each chunk that is here is in one batch, and each batch has all of its chunks here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;

use super::ChunkKey;
use super::window::{self, MOST_CHUNKS, Places};
use crate::id::{Kind, ObjectId};
use crate::segment::pieces::CHUNK_BYTES;

/// So many of the longest requests may be on their way at once.
const REQUESTS: u64 = 8;

/// Chunks, the latest used of them.
#[derive(Debug)]
pub(super) struct Memory {
    capacity_bytes: u64,
    bytes: u64,
    chunks: HashMap<ChunkKey, Chunk>,
    batches: HashMap<BatchId, Batch>,
    /// By the time of their last use.
    by_use: BTreeMap<u64, BatchId>,
    /// Batches that were read to their end, and may have gone since.
    read: VecDeque<BatchId>,
    clock: u64,
    /// The most chunks of a request.
    most_chunks: u64,
    places: Places,
}

type BatchId = u64;

#[derive(Debug)]
enum Chunk {
    /// A thread fetches it.
    Coming { is_wanted: bool },
    Here {
        content: Bytes,
        batch: BatchId,
        /// Whether it was asked for. It may have come along with others.
        is_wanted: bool,
    },
}

/// Chunks that one request brought: what is left of its reply goes with the last of them.
#[derive(Debug)]
struct Batch {
    segment: ObjectId,
    chunks: Range<u64>,
    len_bytes: u64,
    /// How much of them threads have read.
    read_bytes: u64,
    used: u64,
}

/// What is known about a chunk.
#[derive(Debug)]
pub(super) enum Lookup {
    Here(Bytes),
    /// A thread fetches it.
    Coming,
    Nothing,
}

impl Memory {
    pub(super) fn new(capacity_bytes: u64, request_bytes: u64) -> Self {
        let most_chunks = (request_bytes / REQUESTS / CHUNK_BYTES).clamp(1, MOST_CHUNKS);
        Self {
            capacity_bytes,
            bytes: 0,
            chunks: HashMap::new(),
            batches: HashMap::new(),
            by_use: BTreeMap::new(),
            read: VecDeque::new(),
            clock: 0,
            most_chunks,
            places: Places::new(most_chunks),
        }
    }

    /// Whether nobody has or fetches a chunk.
    pub(super) fn is_missing(&self, key: ChunkKey) -> bool {
        !self.chunks.contains_key(&key)
    }

    /// The chunk, of which the caller reads so many bytes now.
    pub(super) fn find(&mut self, key: ChunkKey, len_bytes: u64) -> Lookup {
        let (content, id, came_along) = match self.chunks.get_mut(&key) {
            None => return Lookup::Nothing,
            Some(Chunk::Coming { is_wanted }) => {
                if !std::mem::replace(is_wanted, true) {
                    self.places.note_wanted(key);
                }
                return Lookup::Coming;
            }
            Some(Chunk::Here { content, batch, is_wanted }) => {
                (content.clone(), *batch, !std::mem::replace(is_wanted, true))
            }
        };
        self.clock += 1;
        let batch = self.batches.get_mut(&id).expect("each chunk is in one");
        self.by_use.remove(&batch.used);
        batch.used = self.clock;
        self.by_use.insert(self.clock, id);
        if came_along {
            self.places.note_wanted(key);
        }
        let was_read = batch.read_bytes >= batch.len_bytes;
        batch.read_bytes += len_bytes;
        if !was_read && batch.read_bytes >= batch.len_bytes {
            self.read.push_back(id);
        }
        Lookup::Here(content)
    }

    /// The chunks around `key`, which a thread lacks, that nobody has or fetches: the caller fetches
    /// them.
    pub(super) fn claim_missing(&mut self, key: ChunkKey) -> Range<u64> {
        let here = self.chunks_around(key);
        let elsewhere = self.places.chunks();
        self.places.note_wanted(key);
        self.claim(key, here.max(elsewhere), 1)
    }

    /// The chunks from `key` on, `needed` if a request may ask for so many, and those around them
    /// that nobody has or fetches: the caller fetches them.
    pub(super) fn claim_ahead(&mut self, key: ChunkKey, needed: u64) -> Range<u64> {
        let chunks = self.chunks_around(key).max(needed.next_power_of_two().min(self.most_chunks));
        self.claim(key, chunks, needed)
    }

    fn chunks_around(&self, (segment, chunk): ChunkKey) -> u64 {
        window::chunks_around(chunk, self.most_chunks, |index| {
            match self.chunks.get(&(segment, index)) {
                Some(Chunk::Coming { is_wanted } | Chunk::Here { is_wanted, .. }) => *is_wanted,
                None => false,
            }
        })
    }

    /// Claims `chunks` around `key`, at places that this number divides: a walk over a tree wants
    /// the content of a segment in another order than it lies there.
    fn claim(&mut self, (segment, chunk): ChunkKey, chunks: u64, needed: u64) -> Range<u64> {
        let chunks = if segment.kind() == Kind::Flush { 1 } else { chunks };
        let is_missing = |index: &u64| self.is_missing((segment, *index));
        let first = chunk - chunk % chunks;
        let before = (first..chunk).rev().take_while(is_missing).count() as u64;
        let after = (chunk..first + chunks).take_while(is_missing).count() as u64;
        let claimed = chunk - before..chunk + after;
        for index in claimed.clone() {
            let is_wanted = (chunk..chunk + needed).contains(&index);
            self.chunks.insert((segment, index), Chunk::Coming { is_wanted });
        }
        claimed
    }

    /// Ends the claim of chunks.
    pub(super) fn give_up(&mut self, segment: ObjectId, claimed: Range<u64>) {
        for index in claimed {
            if let Some(Chunk::Coming { .. }) = self.chunks.get(&(segment, index)) {
                self.chunks.remove(&(segment, index));
            }
        }
    }

    /// Takes chunks of a segment, from `first` on.
    pub(super) fn put(&mut self, (segment, first): ChunkKey, parts: &[Bytes]) {
        let chunks = first..first + parts.len() as u64;
        for index in chunks.clone() {
            if let Some(Chunk::Here { batch, .. }) = self.chunks.get(&(segment, index)) {
                self.forget(*batch);
            }
        }
        self.clock += 1;
        let batch = self.clock;
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        for (index, content) in chunks.clone().zip(parts.iter().cloned()) {
            let coming = self.chunks.get(&(segment, index));
            let is_wanted = matches!(coming, Some(Chunk::Coming { is_wanted: true }));
            self.chunks.insert((segment, index), Chunk::Here { content, batch, is_wanted });
        }
        self.bytes += len_bytes;
        self.by_use.insert(self.clock, batch);
        let used = self.clock;
        let new = Batch { segment, chunks, len_bytes, read_bytes: 0, used };
        self.batches.insert(batch, new);
        while self.bytes > self.capacity_bytes {
            let oldest = || self.by_use.first_key_value().map(|(_, batch)| *batch);
            let Some(next) = self.read.pop_front().or_else(oldest) else { break };
            self.forget(next);
        }
    }

    /// Forgets a chunk, and those that came with it. Returns whether it was here.
    pub(super) fn forget_chunk(&mut self, key: ChunkKey) -> bool {
        match self.chunks.get(&key) {
            Some(Chunk::Here { batch, .. }) => {
                self.forget(*batch);
                true
            }
            _ => false,
        }
    }

    fn forget(&mut self, batch: BatchId) {
        let Some(batch) = self.batches.remove(&batch) else { return };
        self.by_use.remove(&batch.used);
        self.bytes -= batch.len_bytes;
        for index in batch.chunks {
            self.chunks.remove(&(batch.segment, index));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn content(chunks: usize) -> Vec<Bytes> {
        vec![Bytes::from(vec![7; CHUNK_BYTES as usize]); chunks]
    }

    fn is_here(memory: &mut Memory, key: ChunkKey) -> bool {
        matches!(memory.find(key, 1), Lookup::Here(_))
    }

    #[test]
    fn chunks_of_one_request_go_together_and_never_exceed_the_capacity() {
        let segment = |number| ObjectId::new(1, number);
        let mut memory = Memory::new(8 * CHUNK_BYTES, 64 * CHUNK_BYTES);
        memory.put((segment(0), 0), &content(4));
        memory.put((segment(1), 4), &content(4));
        assert!(is_here(&mut memory, (segment(0), 3)));
        memory.put((segment(2), 0), &content(1));
        assert!(memory.bytes <= 8 * CHUNK_BYTES);
        assert!((0..4).all(|index| is_here(&mut memory, (segment(0), index))));
        assert!((4..8).all(|index| memory.is_missing((segment(1), index))));
        memory.put((segment(3), 0), &content(9));
        assert!(memory.is_missing((segment(3), 0)) && memory.bytes == 0);
        assert!(memory.chunks.is_empty() && memory.by_use.is_empty());
    }

    #[test]
    fn a_stream_leaves_the_rest_of_the_cache_alone() {
        let (kept, stream) = (ObjectId::new(1, 0), ObjectId::new(1, 1));
        let mut memory = Memory::new(8 * CHUNK_BYTES, 64 * CHUNK_BYTES);
        memory.put((kept, 0), &content(4));
        assert!(is_here(&mut memory, (kept, 1)));
        for index in 0..20 {
            memory.put((stream, index), &content(1));
            assert!(matches!(memory.find((stream, index), CHUNK_BYTES), Lookup::Here(_)));
        }
        assert!(is_here(&mut memory, (kept, 1)) && is_here(&mut memory, (stream, 19)));
        assert!(memory.read.len() <= 4 && memory.bytes <= 8 * CHUNK_BYTES);
    }

    #[test]
    fn reads_here_and_there_fetch_little_although_their_checksums_lie_together() {
        let mut memory = Memory::new(1 << 40, 64 * MOST_CHUNKS * CHUNK_BYTES);
        let mut fetched = 0;
        let mut read = |segment: u64, index: u64| {
            let key = (ObjectId::new(1, segment as u32), index);
            if matches!(memory.find(key, 4096), Lookup::Nothing) {
                let claimed = memory.claim_missing(key);
                let count = (claimed.end - claimed.start) as usize;
                memory.put((key.0, claimed.start), &content(count));
                fetched += count;
            }
        };
        // The trees of several segments, when the file system is opened.
        for number in 0..24 {
            read(number % 3, number * 5 % 16);
        }
        for number in 1..=60_u64 {
            // Checksums lie in the trees, in the order of the data.
            let place = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % (128 * MOST_CHUNKS);
            read(number % 3, 16 + place / (8 * MOST_CHUNKS));
            read(3 + place / MOST_CHUNKS, place % MOST_CHUNKS);
        }
        assert!(fetched < 60 + 300, "{fetched}");
    }

    /// A file of 1 GiB, written by commits of so many segments, whose checksums lie after the data of
    /// each. Where two reads lie near to each other, what is around them comes along.
    #[test]
    fn sixty_cold_reads_of_a_large_file_fetch_less_than_eight_megabytes() {
        const SEGMENTS: u64 = 128;
        for (seed, commits) in (0..200).zip([1, 4, 32, 128].into_iter().cycle()) {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut memory = Memory::new(1 << 40, 64 * MOST_CHUNKS * CHUNK_BYTES);
            let mut fetched = 0;
            let mut read = |segment: u64, index: u64| {
                let key = (ObjectId::new(1, segment as u32), index);
                if matches!(memory.find(key, 4096), Lookup::Nothing) {
                    let claimed = memory.claim_missing(key);
                    let count = claimed.end - claimed.start;
                    memory.put((key.0, claimed.start), &content(count as usize));
                    fetched += count * CHUNK_BYTES;
                }
            };
            // The other trees, which the last commit has written, when the file is opened.
            (0..9).for_each(|index| read(SEGMENTS, index));
            let opening = 9 * CHUNK_BYTES;
            for _ in 0..60 {
                let (segment, chunk) = (rng.random_range(0..SEGMENTS), rng.random_range(0..128));
                // 8 KiB of checksums for each 8 MiB.
                let commit = segment * commits / SEGMENTS;
                let within = segment - (commit * SEGMENTS).div_ceil(commits);
                read((commit + 1) * SEGMENTS / commits, 120 + within / 8 % 8);
                read(segment, chunk);
            }
            assert!(fetched - opening < 8_000_000, "{fetched} bytes for seed {seed}");
        }
    }

    #[test]
    fn content_that_comes_twice_is_kept_once() {
        let key = (ObjectId::new(1, 0), 0);
        let mut memory = Memory::new(8 * CHUNK_BYTES, 64 * CHUNK_BYTES);
        memory.put(key, &content(4));
        memory.put((key.0, 2), &content(4));
        assert_eq!((memory.bytes, memory.batches.len()), (4 * CHUNK_BYTES, 1));
        assert!(memory.is_missing(key) && is_here(&mut memory, (key.0, 5)));
    }

    #[test]
    fn what_a_thread_fetches_is_claimed_by_no_other() {
        let segment = ObjectId::new(1, 0);
        let mut memory = Memory::new(8 * CHUNK_BYTES, 64 * CHUNK_BYTES);
        assert_eq!(memory.claim_ahead((segment, 2), 2), 2..4);
        assert_eq!(memory.claim_ahead((segment, 1), 4), 0..2);
        assert!(matches!(memory.find((segment, 3), 1), Lookup::Coming));
        memory.give_up(segment, 2..4);
        assert!(matches!(memory.find((segment, 3), 1), Lookup::Nothing));
    }
}
