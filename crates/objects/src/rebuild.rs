//! A new manifest, after it was damaged or lost.

use bytes::Bytes;

use crate::copies;
use crate::error::ObjectsError;
use crate::head::{self, read_manifest};
use crate::id::ObjectId;
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
    manifest = head::newest_after(store, manifest, |store, it| head::end(store, it, by))?;
    manifest.number += 1;
    manifest.epoch += 1;
    manifest.next_flush = ObjectId::first_flush(manifest.epoch);
    manifest.writer.is_done = true;
    write(store, &manifest)?;
    Ok(manifest.state())
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
