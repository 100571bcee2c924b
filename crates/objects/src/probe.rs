//! Whether a store keeps its word about conditions, and what time it is there.

use bytes::Bytes;

use crate::clock::Clock;
use crate::error::ObjectsError;
use crate::store::{Problem, Store, StoreError};

/// Creates and replaces an object once with a condition that holds and once with one that does not.
/// Returns the store's clock.
///
/// # Errors
/// [`ObjectsError::Unconditional`] if the store does what it must not do.
pub(crate) fn conditions(store: &dyn Store) -> Result<Clock, ObjectsError> {
    let name = format!("probe-{}", uuid::Uuid::new_v4());
    let result = try_conditions(store, &name);
    let deleted = store.delete(&name);
    let Some(clock) = result? else {
        return Err(ObjectsError::Unconditional { store: store.name().to_owned() });
    };
    deleted?;
    Ok(clock)
}

fn try_conditions(store: &dyn Store, name: &str) -> Result<Option<Clock>, StoreError> {
    let content = |text: &'static str| Bytes::from_static(text.as_bytes());
    let first = store.create(name, content("first"))?;
    if !is_refused(store.create(name, content("second")))? {
        return Ok(None);
    }
    store.replace(name, content("third"), &first)?;
    let clock = Clock::of_store(store.get_versioned(name)?.modified);
    let is_refused = is_refused(store.replace(name, content("fourth"), &first))?;
    Ok(is_refused.then_some(clock))
}

fn is_refused<T>(result: Result<T, StoreError>) -> Result<bool, StoreError> {
    match result {
        Ok(_) => Ok(false),
        Err(error) if error.problem == Problem::Condition => Ok(true),
        Err(error) => Err(error),
    }
}
