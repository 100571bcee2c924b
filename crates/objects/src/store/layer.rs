//! Stores around other stores.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::timer::Timer;
use crate::watch::Watch;

use super::{Listed, Store, StoreError, Version, Versioned};

/// A store that treats all requests to another one alike: it repeats, delays or refuses them.
pub trait Layer: Send + Sync + fmt::Debug {
    /// The other store.
    type Below: Store + ?Sized;

    /// The store to which the requests go.
    fn below(&self) -> &Self::Below;

    /// Makes the request `call` for the object `name`, once or more often.
    ///
    /// # Errors
    /// Those of the request, and those that the layer adds.
    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&Self::Below) -> Result<T, StoreError>,
    ) -> Result<T, StoreError>;

    /// Why requests wait at this time, if any does.
    fn trouble(&self) -> Option<String> {
        self.below().trouble()
    }

    /// Repeats each request for so long only, from now on.
    fn have_patience_for(&self, time: Duration) {
        self.below().have_patience_for(time);
    }

    /// How its users measure time, if that is not as the other store says.
    fn timer(&self) -> Option<Timer> {
        None
    }
}

/// Shares a store.
impl<S: Store + ?Sized> Layer for Arc<S> {
    type Below = S;

    fn below(&self) -> &S {
        self
    }

    fn pass<T>(
        &self,
        _: &str,
        call: impl Fn(&S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        call(self)
    }
}

impl<L: Layer> Store for L {
    fn name(&self) -> &str {
        self.below().name()
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.pass(name, |below| below.get(name, range.clone()))
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.pass(name, |below| below.get_versioned(name))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.pass(name, |below| below.try_create(name, content.clone()))
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.pass(name, |below| below.try_replace(name, content.clone(), version))
    }

    fn create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.pass(name, |below| below.create(name, content.clone()))
    }

    fn replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
        before: &[u8],
    ) -> Result<Version, StoreError> {
        self.pass(name, |below| below.replace(name, content.clone(), version, before))
    }

    fn mend(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.pass(name, |below| below.mend(name, content.clone()))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.pass(name, |below| below.delete(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.pass(prefix, |below| below.list(prefix))
    }

    fn trouble(&self) -> Option<String> {
        Layer::trouble(self)
    }

    fn have_patience_for(&self, time: Duration) {
        Layer::have_patience_for(self, time);
    }

    fn timer(&self) -> Timer {
        Layer::timer(self).unwrap_or_else(|| self.below().timer())
    }

    fn watch(&self) -> Option<Watch> {
        self.below().watch()
    }
}
