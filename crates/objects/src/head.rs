//! The newest state in a store: the manifest's, and the flushes after it.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::confirmed::Confirmed;
use crate::copies;
use crate::each::each;
use crate::error::ObjectsError;
use crate::fetch::understood;
use crate::flush::Next;
use crate::id::{Kind, ObjectId};
use crate::manifest::{self, Manifest};
use crate::state_name::StateName;
use crate::states::State;
use crate::store::{Problem, Store, StoreError, Version, Versioned};

/// So many flushes are asked for at first, and at most, at once.
const FIRST_AT_ONCE: usize = 2;
const MOST_AT_ONCE: usize = 8;

/// So often a reader looks at a device that changes meanwhile: what it has read then was the newest
/// state at some time since it began to look.
const MOST_LOOKS: u32 = 20;

/// A manifest as a reply showed it, which may be wrong or old: its bytes, and their version.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    content: Bytes,
    pub(crate) version: Version,
}

/// A manifest that this process has put into the store, in the place of the one before it: so the
/// store had both.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    found: Found,
    confirmed: Confirmed,
    /// Whether the store has a copy of it, as far as this writer knows.
    is_copied: bool,
}

impl Found {
    /// Writes `manifest`, which has the next number, in its place, and keeps a copy.
    pub(crate) fn replaced(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
    ) -> Result<Stored, StoreError> {
        let content = Bytes::from(manifest.encode());
        let version =
            store.replace(manifest::NAME, content.clone(), &self.version, &self.content)?;
        let confirmed = Confirmed::by_a_write();
        let is_copied = copies::keep(store, manifest, &content);
        Ok(Stored { confirmed, found: Self { content, version }, is_copied })
    }
}

impl Stored {
    /// As [`Found::replaced`].
    pub(crate) fn replaced(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
    ) -> Result<Self, StoreError> {
        self.found.replaced(store, manifest)
    }

    /// Makes sure that there is a copy of it in the store.
    pub(crate) fn copy(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        if !self.is_copied
            && let Ok(manifest) = Manifest::decode(&self.found.content)
        {
            copies::make(store, &manifest, &self.found.content)?;
            self.is_copied = true;
        }
        Ok(())
    }

    /// What this manifest does not need may be deleted.
    pub(crate) fn confirmed(&self) -> Confirmed {
        self.confirmed
    }
}

impl From<Versioned> for Found {
    fn from(found: Versioned) -> Self {
        Self { content: found.content, version: found.version }
    }
}

/// Writes the first manifest of a device, where no other device is or was.
pub(crate) fn create_first(store: &dyn Store, manifest: &Manifest) -> Result<(), ObjectsError> {
    match read_manifest(store) {
        // What is left of it would be garbage to the new one.
        Err(error @ ObjectsError::Lost { .. }) => Err(error),
        _ => create(store, manifest),
    }
}

/// Writes a manifest where there is none.
pub(crate) fn create(store: &dyn Store, manifest: &Manifest) -> Result<(), ObjectsError> {
    let content = Bytes::from(manifest.encode());
    match store.create(manifest::NAME, content.clone()) {
        Err(error) if error.problem == Problem::Condition => {
            Err(ObjectsError::Exists { store: store.name().to_owned() })
        }
        result => {
            result?;
            copies::keep(store, manifest, &content);
            Ok(())
        }
    }
}

/// What stands in the place of the manifest for a moment while a device is deleted that has none.
const NOTHING: &[u8] = b"LarderOM is deleted";

/// Confirms that there is no manifest.
pub(crate) fn confirm_missing(store: &dyn Store) -> Result<Confirmed, ObjectsError> {
    store.create(manifest::NAME, Bytes::from_static(NOTHING))?;
    let confirmed = Confirmed::by_a_write();
    confirmed.delete(store, manifest::NAME)?;
    Ok(confirmed)
}

/// Whether an interrupted [`confirm_missing`] has left something.
pub(crate) fn is_confirming(store: &dyn Store) -> bool {
    store.get_versioned(manifest::NAME).is_ok_and(|found| found.content == NOTHING)
}

/// The manifest in the store, and what it says.
pub(crate) fn read_manifest(store: &dyn Store) -> Result<(Manifest, Found), ObjectsError> {
    let get = || {
        store.get_versioned(manifest::NAME).map_err(|error| match error.problem {
            Problem::NotFound => missing(store),
            _ => error.into(),
        })
    };
    understood(store, manifest::NAME, get, |found| {
        Ok((Manifest::decode(&found.content)?, Found::from(found.clone())))
    })
}

/// Makes sure that a rebuilding would know what the manifest in the store says: its writer may have
/// made no copy.
pub(crate) fn copy(store: &dyn Store) -> Result<(), ObjectsError> {
    match read_manifest(store) {
        // Its copy is what everybody reads.
        Err(ObjectsError::Damaged { .. }) => Ok(()),
        result => {
            let (manifest, found) = result?;
            Ok(copies::make(store, &manifest, &found.content)?)
        }
    }
}

fn missing(store: &dyn Store) -> ObjectsError {
    let name = store.name().to_owned();
    if copies::are_there(store) {
        ObjectsError::Lost { store: name }
    } else {
        ObjectsError::Missing { store: name }
    }
}

/// What the writer would write as the manifest now.
///
/// A writer that goes on meanwhile may delete flushes after a newer manifest has what they say. So
/// the flushes that are there continue the manifest only if it is still the same after the look.
///
/// If the manifest is damaged, its copy and the flushes after it say the same.
pub(crate) fn read(store: &dyn Store) -> Result<Manifest, ObjectsError> {
    read_from(store).map(|(manifest, _)| manifest)
}

/// Where a reader has found the newest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Manifest,
    /// Its writer may have written a manifest since which has no copy yet: what that one has doomed
    /// for long goes at once when it gets one.
    Copy,
}

/// As [`read`], with what it was read from.
pub(crate) fn read_from(store: &dyn Store) -> Result<(Manifest, Source), ObjectsError> {
    let (mut manifest, mut before) = match read_manifest(store) {
        Err(error @ ObjectsError::Damaged { .. }) => {
            let Ok(Some(copy)) = copies::newest(store) else { return Err(error) };
            tracing::warn!("{error}; a copy of it is read; 'larder objects rebuild' mends it");
            return Ok((read_after_copy(store, copy)?, Source::Copy));
        }
        result => result?,
    };
    for _ in 0..MOST_LOOKS {
        if manifest.writer.is_done {
            break;
        }
        let follows = follow(store, &mut manifest)?;
        let (next, found) = read_manifest(store)?;
        if found.version == before.version {
            follows.check(store)?;
            break;
        }
        (manifest, before) = (next, found);
    }
    Ok((manifest, Source::Manifest))
}

/// What the newest copy and the flushes after it say, which may be `copy`. A writer that goes on may
/// make another one meanwhile, and delete what that does not need.
fn read_after_copy(store: &dyn Store, mut copy: Manifest) -> Result<Manifest, ObjectsError> {
    for _ in 1..MOST_LOOKS {
        let number = copy.number;
        let read = newest_after(store, copy, follow);
        match copies::newest(store)? {
            Some(newer) if newer.number != number => copy = newer,
            _ => return read,
        }
    }
    newest_after(store, copy, follow)
}

/// What a copy of a manifest and the flushes after it say.
///
/// The flushes of its epoch come first. A writer that has taken over since, and could make no copy,
/// has made flushes of a later epoch: they go on from the end of the one before. `follow` adds those
/// of the manifest's epoch to it.
pub(crate) fn newest_after(
    store: &dyn Store,
    mut manifest: Manifest,
    follow: impl Fn(&dyn Store, &mut Manifest) -> Result<Follows, ObjectsError>,
) -> Result<Manifest, ObjectsError> {
    let mut later = first_flushes(store)?;
    loop {
        follow(store, &mut manifest)?.check(store)?;
        later = later.split_off(&(manifest.epoch + 1));
        let Some((epoch, first)) = later.pop_first() else { return Ok(manifest) };
        let (next, nonce) = Next::read_any(store, first)?;
        // States of a writer that takes over go on where the one before ended.
        if let Next::Flush(flush) = next
            && flush.state.number != manifest.state().number + 1
        {
            let why = "flushes before it are missing, and no copy of a manifest has what they said";
            return Err(ObjectsError::damaged(store, &first.name(), &why));
        }
        manifest.writer.nonce = nonce;
        (manifest.epoch, manifest.next_flush) = (epoch, first);
    }
}

/// The first flush of each epoch that is there.
fn first_flushes(store: &dyn Store) -> Result<BTreeMap<u32, ObjectId>, ObjectsError> {
    let mut first = BTreeMap::new();
    for listed in store.list(Kind::Flush.folder())? {
        let Some((Kind::Flush, id)) = Kind::parse(&listed.name) else { continue };
        let least = first.entry(id.epoch()).or_insert(id);
        *least = (*least).min(id);
    }
    Ok(first)
}

/// Ends the writing of the manifest's epoch, unless somebody has: no flush follows those that are in
/// `manifest` then.
pub(crate) fn end(
    store: &dyn Store,
    manifest: &mut Manifest,
    by: &str,
) -> Result<Follows, ObjectsError> {
    loop {
        match follow(store, manifest)? {
            Follows::Nothing => {}
            follows => return Ok(follows),
        }
        let id = manifest.next_flush;
        let end = Next::End { by: by.to_owned() }.encode(id, &manifest.writer.nonce);
        match store.create(&id.name(), end) {
            // The writer was faster.
            Err(error) if error.problem == Problem::Condition => {}
            result => return result.map(|()| Follows::End).map_err(Into::into),
        }
    }
}

/// What comes after the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    Nothing,
    /// The writing of the epoch has ended.
    End,
    /// The next flush is not there, and later ones are. A writer creates none before the store has
    /// the one before: either a newer manifest has what the missing one said, or it is lost.
    Hole(ObjectId),
}

impl Follows {
    /// Reports a flush that is lost.
    pub(crate) fn check(self, store: &dyn Store) -> Result<(), ObjectsError> {
        let Self::Hole(id) = self else { return Ok(()) };
        let why = "it is missing, and flushes after it are there";
        Err(ObjectsError::damaged(store, &id.name(), &why))
    }
}

/// Adds the flushes that follow `manifest` to it.
fn follow(store: &dyn Store, manifest: &mut Manifest) -> Result<Follows, ObjectsError> {
    let (mut at_once, mut was_missing) = (FIRST_AT_ONCE, None);
    loop {
        let first = manifest.next_flush;
        let mut found = read_some(store, manifest, at_once)?;
        while let Some((next, len_bytes)) = found.remove(&manifest.next_flush) {
            match next {
                Next::Flush(flush) => manifest.append(flush, len_bytes),
                Next::End { .. } => return Ok(Follows::End),
            }
        }
        let missing = manifest.next_flush;
        if !found.is_empty() {
            // It may have come after this thread has asked for it.
            if was_missing.replace(missing) == Some(missing) {
                return Ok(Follows::Hole(missing));
            }
        } else if missing.raw() - first.raw() < at_once as u64 {
            return Ok(Follows::Nothing);
        }
        at_once = (at_once * 2).min(MOST_AT_ONCE);
    }
}

/// Those of the next flushes that are there.
fn read_some(
    store: &dyn Store,
    manifest: &Manifest,
    at_once: usize,
) -> Result<BTreeMap<ObjectId, (Next, u64)>, ObjectsError> {
    let after = |id: &ObjectId| Some(id.next());
    let ids: Vec<_> =
        std::iter::successors(Some(manifest.next_flush), after).take(at_once).collect();
    let found = Mutex::new(BTreeMap::new());
    each(
        &ids,
        |id| match Next::read(store, *id, &manifest.writer.nonce) {
            Ok(next) => {
                found.lock().insert(*id, next);
                Ok(())
            }
            Err(ObjectsError::Store(StoreError { problem: Problem::NotFound, .. })) => Ok(()),
            Err(error) => Err(error),
        },
        |_| (),
    )?;
    Ok(found.into_inner())
}

/// The kept state that `name` names.
pub(crate) fn find_state(
    store: &dyn Store,
    manifest: &Manifest,
    name: &StateName,
) -> Result<State, ObjectsError> {
    let states: Vec<_> = manifest.states().collect();
    name.find(&states).ok_or_else(|| ObjectsError::NoSuchState {
        store: store.name().to_owned(),
        state: name.to_string(),
    })
}
