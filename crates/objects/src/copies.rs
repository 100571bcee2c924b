//! Copies of the manifest, for the day on which it is damaged or lost.
//!
//! ```text
//!   copies/NUMBER      the manifest with this number: the last few
//! ```
//!
//! # Invariants
//! - A copy is made after the store has its manifest: so a writer that another one has followed
//!   makes none that says more than was ever true.
//! - No object is deleted before there is a copy of a manifest that has what the object says. So the
//!   newest copy and the flushes after it say all that the manifest and the flushes after it say.
//! - Manifests of one device have different numbers. Another content under the number of a manifest
//!   that the store has is left of a device that was set back since, and the copy takes its place.
//! - Content that no flush says, that of a rollback, counts when there is a copy that says it.

use bytes::Bytes;

use crate::confirmed::Confirmed;
use crate::error::ObjectsError;
use crate::fetch::{listed, understood};
use crate::manifest::Manifest;
use crate::store::{Problem, Store, StoreError};

pub(crate) const FOLDER: &str = "copies";

/// So many are kept.
const MOST: u64 = 4;

fn name(number: u64) -> String {
    format!("{FOLDER}/{number:016x}")
}

fn number(name: &str) -> Option<u64> {
    let (folder, number) = name.split_once('/')?;
    (folder == FOLDER && number.len() == 16).then(|| u64::from_str_radix(number, 16).ok())?
}

/// Makes a copy of a manifest that the store has. Returns whether it is there: nothing but a
/// rebuilding needs it, so that what goes wrong is only reported.
pub(crate) fn keep(store: &dyn Store, manifest: &Manifest, content: &Bytes) -> bool {
    let made = make(store, manifest, content);
    if let Err(error) = &made {
        tracing::warn!("{error}; there is no copy of this manifest");
    }
    made.is_ok()
}

/// Makes a copy of a manifest that the store has.
pub(crate) fn make(
    store: &dyn Store,
    manifest: &Manifest,
    content: &Bytes,
) -> Result<(), StoreError> {
    let copy = name(manifest.number);
    match store.create(&copy, content.clone()) {
        Err(error) if error.problem == Problem::Condition => {
            let left = store.get_versioned(&copy)?;
            store.replace(&copy, content.clone(), &left.version, &left.content)?;
        }
        result => result?,
    }
    if let Some(old) = manifest.number.checked_sub(MOST)
        && let Err(error) = store.delete(&name(old))
    {
        tracing::debug!("{error}; an old copy of the manifest stays");
    }
    Ok(())
}

/// Whether there are copies, as far as the store lists them.
pub(crate) fn are_there(store: &dyn Store) -> bool {
    let listed = store.list(FOLDER).unwrap_or_default();
    listed.iter().any(|listed| number(&listed.name).is_some())
}

/// The newest copy that is sound.
pub(crate) fn newest(store: &dyn Store) -> Result<Option<Manifest>, ObjectsError> {
    listed(|| newest_once(store))
}

fn newest_once(store: &dyn Store) -> Result<Option<Manifest>, ObjectsError> {
    let found = store.list(FOLDER)?;
    let mut numbers: Vec<_> = found.iter().filter_map(|found| number(&found.name)).collect();
    numbers.sort_unstable();
    for number in numbers.into_iter().rev() {
        let found = store.get_versioned(&name(number))?;
        match Manifest::decode(&found.content) {
            Ok(manifest) if manifest.number == number => return Ok(Some(manifest)),
            Ok(_) => tracing::warn!("{}/{}: it is another copy", store.name(), name(number)),
            Err(why) => tracing::warn!("{}/{}: {why}", store.name(), name(number)),
        }
    }
    Ok(None)
}

/// What is wrong with the copies that are there, one text for each.
pub(crate) fn verify(store: &dyn Store) -> Result<Vec<String>, ObjectsError> {
    let listed = match store.list(FOLDER) {
        // A web server has no lists, and keys may not be for them.
        Err(error) if matches!(error.problem, Problem::Unsupported | Problem::Denied) => Vec::new(),
        result => result?,
    };
    let mut wrong = Vec::new();
    for name in listed.into_iter().map(|listed| listed.name) {
        let decoded = understood(
            store,
            &name,
            || Ok(store.get_versioned(&name)?),
            |found| Manifest::decode(&found.content).map(drop),
        );
        match decoded {
            Err(error @ ObjectsError::Damaged { .. }) => wrong.push(error.to_string()),
            // Its writer has deleted it.
            Err(ObjectsError::Store(error)) if error.problem == Problem::NotFound => {}
            result => result?,
        }
    }
    Ok(wrong)
}

/// Deletes copies that writers which were interrupted have left.
pub(crate) fn delete_old(
    store: &dyn Store,
    confirmed: Confirmed,
    newest: u64,
) -> Result<(), ObjectsError> {
    let is_old = |name: &String| number(name).is_some_and(|number| number + MOST <= newest);
    let old: Vec<_> = store.list(FOLDER)?.into_iter().map(|it| it.name).filter(is_old).collect();
    confirmed.delete_each(store, &old, |_| ())
}
