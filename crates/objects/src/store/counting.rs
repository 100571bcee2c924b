//! Counting requests, which users of a store pay for.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::{Listed, Store, StoreError, Version};

/// Requests to a store, and the bytes that they moved. Repeated attempts count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Reads.
    pub gets: u64,
    /// Bytes that reads returned.
    pub got_bytes: u64,
    /// New objects.
    pub creates: u64,
    /// Bytes of new objects.
    pub created_bytes: u64,
    /// Replacements of the manifest.
    pub replaces: u64,
    /// Bytes of those.
    pub replaced_bytes: u64,
    /// Deletions.
    pub deletes: u64,
    /// Listings.
    pub lists: u64,
}

/// A store that counts.
#[derive(Debug)]
pub struct Counting<S> {
    store: S,
    counts: [AtomicU64; 8],
}

const GETS: usize = 0;
const CREATES: usize = 2;
const REPLACES: usize = 4;
const DELETES: usize = 6;
const LISTS: usize = 7;

impl<S: Store> Counting<S> {
    /// Counts the requests to `store`.
    pub fn new(store: S) -> Self {
        Self { store, counts: Default::default() }
    }

    /// The requests so far.
    pub fn requests(&self) -> Requests {
        let count = |at: usize| self.counts[at].load(Ordering::Relaxed);
        Requests {
            gets: count(GETS),
            got_bytes: count(GETS + 1),
            creates: count(CREATES),
            created_bytes: count(CREATES + 1),
            replaces: count(REPLACES),
            replaced_bytes: count(REPLACES + 1),
            deletes: count(DELETES),
            lists: count(LISTS),
        }
    }

    fn count(&self, at: usize, bytes: usize) {
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.counts[at + 1].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<S: Store> Store for Counting<S> {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let result = self.store.get(name, range);
        self.count(GETS, result.as_ref().map_or(0, Bytes::len));
        result
    }

    fn get_versioned(&self, name: &str) -> Result<(Bytes, Version), StoreError> {
        let result = self.store.get_versioned(name);
        self.count(GETS, result.as_ref().map_or(0, |(bytes, _)| bytes.len()));
        result
    }

    fn create(&self, name: &str, content: Bytes) -> Result<Version, StoreError> {
        self.count(CREATES, content.len());
        self.store.create(name, content)
    }

    fn replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.count(REPLACES, content.len());
        self.store.replace(name, content, version)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.counts[DELETES].fetch_add(1, Ordering::Relaxed);
        self.store.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.counts[LISTS].fetch_add(1, Ordering::Relaxed);
        self.store.list(prefix)
    }
}
