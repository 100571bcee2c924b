//! Whether a store keeps its word about conditions, and what time it is there.

use bytes::Bytes;

use crate::clock::Clock;
use crate::error::ObjectsError;
use crate::store::{Problem, Store, StoreError, Version};

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
    let store_name = store.name().to_owned();
    match result {
        Ok(Some(clock)) => Ok(deleted.map(|()| clock)?),
        Ok(None) => Err(ObjectsError::Unconditional { store: store_name }),
        Err(error) if error.problem == Problem::Unsupported => {
            Err(ObjectsError::OnlyForReading { store: store_name })
        }
        Err(error) => Err(error.into()),
    }
}

fn try_conditions(store: &dyn Store, name: &str) -> Result<Option<Clock>, StoreError> {
    let content = |text: &'static str| Bytes::from_static(text.as_bytes());
    let created = store.create(name, content("first"));
    let first = version_after(created, store, name, &content("first"))?;
    if !is_refused(store.create(name, content("second")))? {
        return Ok(None);
    }
    let replaced = store.replace(name, content("third"), &first);
    version_after(replaced, store, name, &content("third"))?;
    let clock = Clock::of_store(store.get_versioned(name)?.modified);
    let is_refused = is_refused(store.replace(name, content("fourth"), &first))?;
    Ok(is_refused.then_some(clock))
}

/// The version of an object after a request whose condition held. A request that was repeated may
/// be refused although the first attempt succeeded: then the object has the wanted content.
fn version_after(
    result: Result<Version, StoreError>,
    store: &dyn Store,
    name: &str,
    wanted: &Bytes,
) -> Result<Version, StoreError> {
    match result {
        Err(error) if error.problem == Problem::Condition => {
            let found = store.get_versioned(name)?;
            if found.content == wanted { Ok(found.version) } else { Err(error) }
        }
        result => result,
    }
}

fn is_refused<T>(result: Result<T, StoreError>) -> Result<bool, StoreError> {
    match result {
        Ok(_) => Ok(false),
        Err(error) if error.problem == Problem::Condition => Ok(true),
        Err(error) => Err(error),
    }
}
