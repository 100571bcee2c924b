//! Objects that lie where a device was cloned from.

use std::fmt;
use std::ops::{Deref, Range};

use bytes::Bytes;

use super::pass_on::pass_on;
use super::{Store, StoreError, Versioned};
use crate::id::Kind;
use crate::manifest::Base;

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
    pass_on!(store: name, try_create, try_replace, mend, list, trouble, have_patience_for, timer, watch);

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.store.get(self.elsewhere(name).as_deref().unwrap_or(name), range)
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.store.get_versioned(self.elsewhere(name).as_deref().unwrap_or(name))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        if self.elsewhere(name).is_some() { Ok(()) } else { self.store.delete(name) }
    }
}
