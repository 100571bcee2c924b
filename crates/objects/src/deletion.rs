//! Deleting a whole device.
//!
//! # Invariants
//! - The thread deletes the copies of the manifest, then the manifest, then the objects that it leads
//!   to. After an interruption nobody can open or rebuild what is left, and the next attempt deletes
//!   it.
//! - Nothing goes that a clone needs or a reader holds. Both make an object that says so, and read the
//!   manifest then. Once the manifest has gone, the thread looks for such objects again. If it finds
//!   one, it puts the manifest back.
//! - No writer goes on: the deletion begins as one.

use larder_platform::errno::in_words;

use crate::claim::Claim;
use crate::confirmed::Confirmed;
use crate::copies;
use crate::error::ObjectsError;
use crate::head::{self, read_manifest};
use crate::hold;
use crate::id::Kind;
use crate::keys;
use crate::lease;
use crate::manifest::{self, Manifest};
use crate::ownership::{Right, take_over, this_process};
use crate::probe;
use crate::store::{Listed, Problem, Store};
use crate::streams::catalogue;

/// What a deletion takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// How many objects.
    pub objects: u64,
    /// Their length in bytes.
    pub len_bytes: u64,
}

/// What [`delete`] would take away at this time.
///
/// # Errors
/// [`ObjectsError::Missing`] if there is nothing, and those of the store.
pub fn deletable(store: &dyn Store) -> Result<Deletion, ObjectsError> {
    let mut all: Vec<u64> = listed(store)?.iter().map(|listed| listed.len_bytes).collect();
    all.extend(found(store, manifest::NAME)?);
    if all.is_empty() {
        return Err(ObjectsError::Missing { store: store.name().to_owned() });
    }
    Ok(Deletion { objects: all.len() as u64, len_bytes: all.iter().sum() })
}

/// Deletes a device, or what an interrupted deletion has left of one. If it `takes_over`, it ends the
/// writing of another machine. `tell` gets the number of objects that are deleted, and that of all.
///
/// # Errors
/// [`ObjectsError::InUse`], [`ObjectsError::NotClosed`]; [`ObjectsError::HasClones`] and
/// [`ObjectsError::IsRead`]; [`ObjectsError::Missing`]; and those of the store. After an error of the
/// store the same call goes on.
pub fn delete(
    store: &dyn Store,
    takes_over: bool,
    mut tell: impl FnMut(u64, u64) + Send,
) -> Result<Deletion, ObjectsError> {
    let right = if takes_over { Right::ToAny } else { Right::ToClosed };
    let (before, claim, confirmed) = match read_manifest(store) {
        Ok((found, _)) => {
            let (manifest, claim, confirmed) = end(store, &found, right)?;
            (Some(manifest), Some(claim), confirmed)
        }
        // An attempt has begun, or somebody else has deleted the manifest.
        Err(ObjectsError::Missing { .. } | ObjectsError::Lost { .. }) => {
            deletable(store)?;
            (None, None, head::confirm_missing(store)?)
        }
        Err(ObjectsError::Damaged { .. }) if head::is_confirming(store) => {
            (None, None, head::confirm_missing(store)?)
        }
        Err(error) => return Err(error),
    };
    let planned = deletable(store)?;
    check_unused(store)?;
    remove(store, confirmed, &store.list(copies::FOLDER)?, &mut |_| ())?;
    if let Some(manifest) = &before {
        confirmed.delete(store, manifest::NAME)?;
        if let Err(used) = check_unused(store) {
            head::create(store, manifest)?;
            return Err(used);
        }
    }
    remove(store, confirmed, &listed(store)?, &mut |deleted| tell(deleted, planned.objects))?;
    if found(store, catalogue::NAME)?.is_none() {
        // Without them nobody could have gone on.
        confirmed.delete(store, keys::NAME)?;
    }
    if let Some((manifest, base)) = before.as_ref().and_then(|it| Some((it, it.bases.last()?))) {
        // Where it was cloned from, nothing is needed for it any more.
        let hold = hold::name(manifest.uuid);
        if let Err(error) = confirmed.delete(store, &format!("{}/{hold}", base.path)) {
            tracing::warn!(
                "{error}; 'larder objects gc --forget-missing-clones' there does it later"
            );
        }
    }
    drop(claim);
    Ok(planned)
}

/// Ends the writing of anybody else.
fn end(
    store: &dyn Store,
    found: &Manifest,
    right: Right<'_>,
) -> Result<(Manifest, Claim, Confirmed), ObjectsError> {
    let claim = Claim::take(&found.uuid).map_err(|error| ObjectsError::Address {
        text: store.name().to_owned(),
        why: format!("this machine cannot exclude other writers: {}", in_words(&error)),
    })?;
    let Some(claim) = claim else {
        let (store, by) = (store.name().to_owned(), found.writer.to_string());
        return Err(ObjectsError::InUse { store, by });
    };
    let mut writer = this_process(probe::conditions(store)?.now());
    // After an interruption anybody may open it, or delete it.
    writer.is_done = true;
    let (manifest, stored) = take_over(store, &writer, right)?;
    Ok((manifest, claim, stored.confirmed()))
}

/// Fails if a clone or a reader needs what is there.
fn check_unused(store: &dyn Store) -> Result<(), ObjectsError> {
    let missing = hold::of_missing(store)?;
    let clones = hold::read(store)?.into_iter().filter(|hold| !missing.contains(hold));
    let clones: Vec<_> = clones.map(|hold| hold.path).collect();
    if !clones.is_empty() {
        let (store, clones) = (store.name().to_owned(), clones.join(", "));
        return Err(ObjectsError::HasClones { store, clones });
    }
    if lease::is_any(store)? {
        let now = probe::conditions(store)?.now();
        let readers = lease::in_force(store, now)?.into_iter().map(|lease| lease.reader);
        let readers: Vec<_> = readers.collect();
        if !readers.is_empty() {
            let (store, readers) = (store.name().to_owned(), readers.join(", "));
            return Err(ObjectsError::IsRead { store, readers });
        }
    }
    Ok(())
}

/// All objects except the manifest, in the order in which they go. Those of streams are not among
/// them.
fn listed(store: &dyn Store) -> Result<Vec<Listed>, ObjectsError> {
    let mut all = Vec::new();
    let folders = Kind::ALL.map(Kind::folder).into_iter();
    for folder in [copies::FOLDER].into_iter().chain(folders).chain([lease::FOLDER, hold::FOLDER]) {
        all.extend(store.list(folder)?);
    }
    Ok(all)
}

/// The length of an object, if it is there.
fn found(store: &dyn Store, name: &str) -> Result<Option<u64>, ObjectsError> {
    match store.get_versioned(name) {
        Ok(found) => Ok(Some(found.content.len() as u64)),
        Err(error) if error.problem == Problem::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn remove(
    store: &dyn Store,
    confirmed: Confirmed,
    objects: &[Listed],
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<(), ObjectsError> {
    let names: Vec<_> = objects.iter().map(|listed| listed.name.clone()).collect();
    confirmed.delete_each(store, &names, tell)
}
