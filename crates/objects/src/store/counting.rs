//! A store that counts.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;

use super::pass_on::pass_on;
use super::{Listed, Store, StoreError, Version, Versioned};
use crate::requests::{CREATES, Counts, DELETES, GETS, LISTS, REPLACES, Requests};
use crate::watch::Watch;

/// A store that counts.
#[derive(Debug)]
pub struct Counting<S> {
    store: S,
    counts: Counts,
    watch: Option<Watch>,
}

static OF_THIS_PROCESS: LazyLock<Counts> = LazyLock::new(Counts::default);

/// The requests of this process to the stores of all [addresses](crate::Address), each attempt
/// counted: what a command costs that uses several.
pub fn requests_of_this_process() -> Requests {
    OF_THIS_PROCESS.read()
}

impl<S: Store> Counting<S> {
    /// Counts the requests to `store`.
    pub fn new(store: S) -> Self {
        Self { store, counts: Counts::default(), watch: None }
    }

    /// Counts the requests to `store` for whoever watches it, and among those of this process.
    pub(crate) fn watched(store: S) -> Self {
        Self { watch: Some(Watch::default()), ..Self::new(store) }
    }

    /// The requests so far.
    pub fn requests(&self) -> Requests {
        self.counts.read()
    }

    fn add(&self, kind: usize) {
        self.each(|counts| counts.add(kind));
    }

    fn add_with_bytes(&self, kind: usize, bytes: usize) {
        self.each(|counts| counts.add_with_bytes(kind, bytes));
    }

    fn each(&self, add: impl Fn(&Counts)) {
        add(&self.counts);
        if let Some(watch) = &self.watch {
            add(watch.requests());
            add(&OF_THIS_PROCESS);
        }
    }
}

impl<S: Store> Store for Counting<S> {
    pass_on!(store: name, trouble, have_patience_for, timer);

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let result = self.store.get(name, range);
        self.add_with_bytes(GETS, result.as_ref().map_or(0, Bytes::len));
        result
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let result = self.store.get_versioned(name);
        self.add_with_bytes(GETS, result.as_ref().map_or(0, |found| found.content.len()));
        result
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.add_with_bytes(CREATES, content.len());
        self.store.try_create(name, content)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.add_with_bytes(REPLACES, content.len());
        self.store.try_replace(name, content, version)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.add(DELETES);
        self.store.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.add(LISTS);
        self.store.list(prefix)
    }

    fn watch(&self) -> Option<Watch> {
        self.watch.clone().or_else(|| self.store.watch())
    }
}
