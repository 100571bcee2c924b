//! Objects that no state needs.
//!
//! States follow one another in a line. An object that a state needs first and another one needs
//! last is needed by those between them at most. So an object can go when no kept state lies there,
//! without looking at any map but the last.

use crate::manifest::Manifest;
use crate::map::ObjectRecord;

/// Dooms objects that no kept state needs.
pub(crate) fn doom(objects: &mut [ObjectRecord], manifest: &Manifest, now: u64) {
    let kept = kept(manifest);
    for object in objects.iter_mut().filter(|object| object.doomed.is_none()) {
        if !is_needed(object, &kept) {
            object.doomed = Some(now);
        }
    }
}

/// Whether there is an object that no kept state needs, and that is not doomed yet.
pub(crate) fn is_there(objects: &[ObjectRecord], manifest: &Manifest) -> bool {
    let kept = kept(manifest);
    objects.iter().any(|object| object.doomed.is_none() && !is_needed(object, &kept))
}

fn kept(manifest: &Manifest) -> Vec<u64> {
    manifest.states().map(|state| state.number).collect()
}

fn is_needed(object: &ObjectRecord, kept: &[u64]) -> bool {
    let Some(died) = object.died else { return true };
    let after = kept.partition_point(|number| *number < object.born);
    kept.get(after).is_some_and(|number| *number < died)
}
