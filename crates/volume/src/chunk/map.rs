//! All chunks of a file system.

use std::sync::Arc;

use larder_format::{Logical, Physical};

use super::{Chunk, ChunkError, Content};

/// Chunks by logical address. No two overlap. Cloning shares the chunks.
#[derive(Clone, Debug, Default)]
pub struct ChunkMap {
    /// In order of their addresses.
    chunks: Vec<Arc<Chunk>>,
}

impl ChunkMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// A map of these chunks. Refuses overlapping ones.
    pub fn from_chunks(chunks: impl IntoIterator<Item = Chunk>) -> Result<Self, ChunkError> {
        let mut map = Self::new();
        chunks.into_iter().try_for_each(|chunk| map.insert(chunk))?;
        Ok(map)
    }

    /// Adds a chunk. Refuses one that overlaps another.
    pub fn insert(&mut self, chunk: Chunk) -> Result<(), ChunkError> {
        let at = self.chunks.partition_point(|other| other.logical() < chunk.logical());
        let before = at.checked_sub(1).map(|at| &self.chunks[at]);
        Self::check_overlap(&chunk, before.into_iter().chain(self.chunks.get(at)))?;
        self.chunks.insert(at, Arc::new(chunk));
        Ok(())
    }

    /// Replaces the chunk that starts where this one does. Refuses a chunk that replaces none, or
    /// that overlaps another.
    pub fn replace(&mut self, chunk: Arc<Chunk>) -> Result<(), ChunkError> {
        let logical = chunk.logical();
        let at = self.chunks.binary_search_by_key(&logical, |chunk| chunk.logical());
        let none = |_| ChunkError { logical, problem: "there is none to replace".into() };
        let at = at.map_err(none)?;
        Self::check_overlap(&chunk, self.chunks.get(at + 1))?;
        self.chunks[at] = chunk;
        Ok(())
    }

    fn check_overlap<'a>(
        chunk: &Chunk,
        neighbours: impl IntoIterator<Item = &'a Arc<Chunk>>,
    ) -> Result<(), ChunkError> {
        let overlaps =
            |other: &&Arc<Chunk>| other.logical() < chunk.end() && chunk.logical() < other.end();
        if let Some(other) = neighbours.into_iter().find(overlaps) {
            let problem = format!(
                "its {} bytes overlap the chunk at {} of {} bytes",
                chunk.len_bytes(),
                other.logical(),
                other.len_bytes()
            );
            return Err(ChunkError { logical: chunk.logical(), problem });
        }
        Ok(())
    }

    /// Removes the chunk that starts at `logical`.
    pub fn remove(&mut self, logical: Logical) -> Option<Arc<Chunk>> {
        let at = self.chunks.binary_search_by_key(&logical, |chunk| chunk.logical()).ok()?;
        Some(self.chunks.remove(at))
    }

    /// The chunk that contains `logical`.
    pub fn get(&self, logical: Logical) -> Option<&Arc<Chunk>> {
        let after = self.chunks.partition_point(|chunk| chunk.logical() <= logical);
        after.checked_sub(1).map(|at| &self.chunks[at]).filter(|chunk| chunk.contains(logical))
    }

    /// The chunks in order of their addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Chunk>> + DoubleEndedIterator {
        self.chunks.iter()
    }

    /// How many chunks there are.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The content at an address of a device; more than one entry only if device extents overlap or a
    /// chunk has the address twice.
    pub fn contents_at(&self, devid: u64, physical: Physical) -> impl Iterator<Item = Content> {
        self.chunks.iter().flat_map(move |chunk| chunk.contents_at(devid, physical))
    }
}
