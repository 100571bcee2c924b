//! Objects that lie where a device was cloned from.

use std::fmt;
use std::ops::{Deref, Range};
use std::time::Duration;

use bytes::Bytes;

use super::{Listed, Store, StoreError, Version, Versioned};
use crate::id::Kind;
use crate::manifest::Base;
use crate::timer::Timer;
use crate::watch::Watch;

/// A store in which objects of early epochs are read from other places. They are never written or
/// deleted there.
pub(crate) struct Based<S> {
    store: S,
    bases: Vec<Base>,
}

impl<S> Based<S> {
    pub(crate) fn new(store: S, bases: Vec<Base>) -> Self {
        Self { store, bases }
    }

    /// The name of an object elsewhere.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let (_, id) = Kind::parse(name)?;
        let base = self.bases.iter().find(|base| id.epoch() <= base.last_epoch)?;
        Some(format!("{}/{name}", base.path))
    }
}

impl<S: Deref<Target: Store>> fmt::Debug for Based<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Based").field("store", &&*self.store).field("bases", &self.bases).finish()
    }
}

impl<S: Deref<Target: Store> + Send + Sync> Store for Based<S> {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.store.get(self.elsewhere(name).as_deref().unwrap_or(name), range)
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.store.get_versioned(self.elsewhere(name).as_deref().unwrap_or(name))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.store.try_create(name, content)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.store.try_replace(name, content, version)
    }

    fn mend(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.store.mend(name, content)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        if self.elsewhere(name).is_some() { Ok(()) } else { self.store.delete(name) }
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.store.list(prefix)
    }

    fn trouble(&self) -> Option<String> {
        self.store.trouble()
    }

    fn have_patience_for(&self, time: Duration) {
        self.store.have_patience_for(time);
    }

    fn timer(&self) -> Timer {
        self.store.timer()
    }

    fn watch(&self) -> Option<Watch> {
        self.store.watch()
    }
}
