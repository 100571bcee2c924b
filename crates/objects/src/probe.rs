//! Whether a store keeps its word about conditions, and what time it is there.

use bytes::Bytes;

use crate::clock::Clock;
use crate::error::ObjectsError;
use crate::store::{Problem, Store, StoreError};

/// Creates and replaces an object once with a condition that holds and once with one that does not.
/// Returns the store's clock.
///
/// # Errors
/// [`ObjectsError::Unconditional`] if the store does what it must not do;
/// [`ObjectsError::OnlyForReading`] if it takes no writes with conditions.
pub(crate) fn conditions(store: &dyn Store) -> Result<Clock, ObjectsError> {
    let name = format!("probe-{}", uuid::Uuid::new_v4());
    let result = try_conditions(store, &name);
    let deleted = store.delete(&name);
    // Keys that may not delete are no reason to write nothing.
    if let (Err(error), Ok(_)) = (deleted, &result) {
        tracing::warn!("{error}; this object of a trial stays, and nothing needs it");
    }
    let store_name = store.name().to_owned();
    match result {
        Ok(Some(clock)) => Ok(clock),
        Ok(None) => Err(ObjectsError::Unconditional { store: store_name }),
        Err(error) if error.problem == Problem::Unsupported => {
            Err(ObjectsError::OnlyForReading { store: store_name })
        }
        Err(error) => Err(error.into()),
    }
}

fn try_conditions(store: &dyn Store, name: &str) -> Result<Option<Clock>, StoreError> {
    let content = |text: &'static str| Bytes::from_static(text.as_bytes());
    store.create(name, content("first"))?;
    if !is_refused(store.try_create(name, content("second")))? {
        return Ok(None);
    }
    let first = store.get_versioned(name)?;
    store.replace(name, content("third"), &first.version, &first.content)?;
    let is_refused = is_refused(store.try_replace(name, content("fourth"), &first.version))?;
    Ok(is_refused.then(|| Clock::of_store(first.modified, store.timer())))
}

fn is_refused<T>(result: Result<T, StoreError>) -> Result<bool, StoreError> {
    match result {
        Ok(_) => Ok(false),
        Err(error) if error.problem == Problem::Condition => Ok(true),
        Err(error) => Err(error),
    }
}
