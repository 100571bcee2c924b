//! A new manifest, after it was damaged or lost.
//!
//! The newest copy says what was true when it was made. The flushes of its epoch follow it. A writer
//! that has taken over since, and could keep no copy, has made flushes of a later epoch: they go on
//! from the end of the one before.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::copies;
use crate::device::first_flush;
use crate::error::ObjectsError;
use crate::flush::Next;
use crate::head::{self, read_manifest};
use crate::id::{Kind, ObjectId};
use crate::manifest::{self, Manifest};
use crate::probe;
use crate::states::State;
use crate::store::{Problem, Store};

/// Writes the manifest of a device anew. Returns its state.
///
/// # Errors
/// [`ObjectsError::Sound`] if the manifest needs no rebuilding; [`ObjectsError::Missing`] if no
/// device was here; [`ObjectsError::Damaged`] if no copy is sound, or a flush is lost; and those of
/// the store.
pub fn rebuild(store: &dyn Store) -> Result<State, ObjectsError> {
    match read_manifest(store) {
        Ok(_) => return Err(ObjectsError::Sound { store: store.name().to_owned() }),
        Err(ObjectsError::Lost { .. } | ObjectsError::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    probe::conditions(store)?;
    let copy = copies::newest(store)?;
    let mut manifest =
        copy.ok_or_else(|| ObjectsError::Missing { store: store.name().to_owned() })?;
    // Whoever wrote last writes no more: its next flush finds the end.
    let by = "larder objects rebuild";
    let mut later = first_flushes(store)?;
    loop {
        head::end(store, &mut manifest, by)?.check(store)?;
        later = later.split_off(&(manifest.epoch + 1));
        let Some((epoch, first)) = later.pop_first() else { break };
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
    manifest.number += 1;
    manifest.epoch += 1;
    manifest.next_flush = first_flush(manifest.epoch);
    manifest.writer.is_done = true;
    write(store, &manifest)?;
    Ok(manifest.state())
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

fn write(store: &dyn Store, manifest: &Manifest) -> Result<(), ObjectsError> {
    let content = Bytes::from(manifest.encode());
    match store.mend(manifest::NAME, content.clone()) {
        Err(error) if error.problem == Problem::NotFound => head::create(store, manifest),
        result => {
            result?;
            copies::keep(store, manifest, &content);
            Ok(())
        }
    }
}
