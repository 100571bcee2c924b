//! The right to delete what a manifest or a catalogue leads to.

use crate::each::each;
use crate::error::ObjectsError;
use crate::store::{Store, StoreError};

/// Says that a write on a condition has shown what the manifest or the catalogue in the store is:
/// this process has replaced it, or has found that there is none. A reply to a read may be wrong. Only with this
/// objects are deleted that another process has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed(());

impl Confirmed {
    /// The store has just done a write whose condition was the manifest, or the catalogue.
    pub(crate) fn by_a_write() -> Self {
        Self(())
    }

    /// Deletes an object that nobody needs.
    pub(crate) fn delete(self, store: &dyn Store, name: &str) -> Result<(), StoreError> {
        let Self(()) = self;
        store.delete(name)
    }

    /// Deletes such objects. `tell` gets how many are deleted.
    pub(crate) fn delete_each(
        self,
        store: &dyn Store,
        names: &[String],
        mut tell: impl FnMut(u64) + Send,
    ) -> Result<(), ObjectsError> {
        let mut deleted = 0;
        each(
            names,
            |name| Ok(self.delete(store, name)?),
            |_| {
                deleted += 1;
                tell(deleted);
            },
        )
    }
}
