//! Objects that no state needs.
//!
//! States follow one another in a line. An object that a state needs first and another one needs
//! last is needed by those between them at most. So an object can go when no kept state lies there,
//! without looking at any map but the last.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::content::Content;
use crate::device;
use crate::error::ObjectsError;
use crate::id::Kind;
use crate::manifest::Manifest;
use crate::map::{Checkpoint, Doomed, Root};
use crate::segment;
use crate::store::Store;
use crate::writer::Writer;

/// So many segments are verified at once.
const VERIFYING_THREADS: usize = 8;

/// Moves objects that no kept state needs from the list of objects to that of doomed ones.
pub(crate) fn doom(root: &mut Root, manifest: &Manifest, now: u64) {
    let kept: Vec<_> = manifest.states().map(|state| state.number).collect();
    root.objects.retain(|object| {
        let Some(died) = object.died else { return true };
        let after = kept.partition_point(|number| *number < object.born);
        if kept.get(after).is_some_and(|number| *number < died) {
            return true;
        }
        root.doomed.push(Doomed { kind: object.kind, id: object.id, since: now });
        false
    });
}

/// What became of objects that no kept state needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Segments of which little was needed, which lies elsewhere now.
    pub rewritten: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Objects that stay for readers, until their time is over.
    pub waiting: u64,
}

/// Finds and deletes objects that no kept state needs.
pub(crate) fn collect(writer: &Writer, content: &Content) -> Result<Collected, ObjectsError> {
    writer.checkpoint()?;
    let rewritten = writer.rewrite_sparse()?;
    let store = &*content.store;
    let manifest = writer.manifest();
    let root = Arc::clone(&*content.checkpoint.read());
    let root = &root.root;
    let known: HashSet<_> = root
        .objects
        .iter()
        .map(|object| object.id)
        .chain(root.doomed.iter().map(|doomed| doomed.id))
        .chain(manifest.tail.iter().map(|segment| segment.id))
        .collect();
    let mut collected = Collected { rewritten, ..Collected::default() };
    for folder in [Kind::Segment, Kind::Map].map(Kind::folder) {
        for listed in store.list(folder)? {
            // Objects of this writer may not be in any manifest yet. Earlier ones write no more.
            let is_left = Kind::parse(&listed.name)
                .is_some_and(|(_, id)| id.epoch() < manifest.epoch && !known.contains(&id));
            if is_left {
                store.delete(&listed.name)?;
                collected.deleted += 1;
            }
        }
    }
    let expired = writer.delete_expired()?;
    collected.deleted += expired;
    collected.waiting = root.doomed.len() as u64 - expired;
    Ok(collected)
}

/// Reads every object that a kept state needs and compares it with its checksums. `tell` learns
/// how many bytes of how many are done.
///
/// # Errors
/// One that was found first, with the object's name.
pub fn verify(store: &dyn Store, tell: impl FnMut(u64, u64) + Send) -> Result<u64, ObjectsError> {
    let (manifest, _) = device::read_manifest(store)?;
    let checkpoint = Checkpoint::load(store, manifest.root)?;
    for index in 0..checkpoint.root.pages.len() {
        checkpoint.page(store, index)?;
    }
    let segments: Vec<_> = checkpoint
        .root
        .objects
        .iter()
        .filter(|object| object.kind == Kind::Segment)
        .map(|object| (object.id, object.len_bytes))
        .chain(manifest.tail.iter().map(|segment| (segment.id, segment.len_bytes)))
        .collect();
    for era in &manifest.earlier {
        Checkpoint::load(store, era.root)?;
    }
    let total: u64 = segments.iter().map(|(_, len_bytes)| len_bytes).sum();
    let (next, progress) = (AtomicUsize::new(0), Mutex::new((0, tell)));
    let work = || {
        while let Some((id, len_bytes)) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = segment::verify(store, *id, *len_bytes) {
                next.store(segments.len(), Ordering::Relaxed);
                return Err(error);
            }
            let (done, tell) = &mut *progress.lock();
            *done += len_bytes;
            tell(*done, total);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..VERIFYING_THREADS).map(|_| scope.spawn(work)).collect();
        let mut results = threads.into_iter().map(|it| it.join().expect("it does not panic"));
        results.try_for_each(|result| result)
    })?;
    Ok(total)
}
