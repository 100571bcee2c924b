//! Counting requests, which users of a store pay for.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::{Listed, Store, StoreError, Version, Versioned};
use crate::timer::Timer;

/// Requests, and the bytes that they moved.
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

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} get of {} bytes, {} put of {} bytes, {} replace of {} bytes, {} delete, {} list",
            self.gets,
            self.got_bytes,
            self.creates,
            self.created_bytes,
            self.replaces,
            self.replaced_bytes,
            self.deletes,
            self.lists
        )
    }
}

/// A store that counts.
#[derive(Debug)]
pub struct Counting<S> {
    store: S,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts([AtomicU64; 8]);

static OF_THIS_PROCESS: LazyLock<Arc<Counts>> = LazyLock::new(Arc::default);

/// The requests of this process to the stores of all [addresses](crate::Address), each attempt
/// counted.
pub fn requests_of_this_process() -> Requests {
    OF_THIS_PROCESS.read()
}

const GETS: usize = 0;
const CREATES: usize = 2;
const REPLACES: usize = 4;
const DELETES: usize = 6;
const LISTS: usize = 7;

impl<S: Store> Counting<S> {
    /// Counts the requests to `store`.
    pub fn new(store: S) -> Self {
        Self { store, counts: Arc::default() }
    }

    /// Counts the requests to `store` among those of this process.
    pub(crate) fn for_this_process(store: S) -> Self {
        Self { store, counts: Arc::clone(&OF_THIS_PROCESS) }
    }

    /// The requests so far.
    pub fn requests(&self) -> Requests {
        self.counts.read()
    }
}

impl Counts {
    fn read(&self) -> Requests {
        let count = |at: usize| self.0[at].load(Ordering::Relaxed);
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

    fn add(&self, at: usize) {
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    fn add_with_bytes(&self, at: usize, bytes: usize) {
        self.add(at);
        self.0[at + 1].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<S: Store> Store for Counting<S> {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let result = self.store.get(name, range);
        self.counts.add_with_bytes(GETS, result.as_ref().map_or(0, Bytes::len));
        result
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let result = self.store.get_versioned(name);
        self.counts.add_with_bytes(GETS, result.as_ref().map_or(0, |found| found.content.len()));
        result
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.counts.add_with_bytes(CREATES, content.len());
        self.store.try_create(name, content)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.counts.add_with_bytes(REPLACES, content.len());
        self.store.try_replace(name, content, version)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.counts.add(DELETES);
        self.store.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.counts.add(LISTS);
        self.store.list(prefix)
    }

    fn trouble(&self) -> Option<String> {
        self.store.trouble()
    }

    fn timer(&self) -> Timer {
        self.store.timer()
    }
}
