//! Rewriting what is left of segments of which little is needed, so that they can go.
//!
//! # Invariants
//! - The new segment is in the store before a manifest names it.
//! - All its ranges had the content that it has when the writer took it up, under the lock that
//!   every write takes; otherwise it is deleted again.
//! - It has little content, and goes past the open segment: no fsync waits for it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::content::Content;
use crate::error::ObjectsError;
use crate::id::{Kind, ObjectId};
use crate::map::{Checkpoint, Delta, Extent, Place, Root};
use crate::segment;
use crate::writer::{Open, Sealed};

/// A segment is rewritten when this part of it, or less, is needed.
const MOST_LIVE: (u64, u64) = (1, 4);

/// A segment that is worth rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sparse {
    pub(crate) id: ObjectId,
    len_bytes: u64,
    live_bytes: u64,
}

/// The segments of a checkpoint that are worth rewriting, with up to `most_bytes` to write: those
/// of which the least is needed.
pub(crate) fn sparse(root: &Root, most_bytes: u64) -> Vec<Sparse> {
    let is_sparse = |sparse: &Sparse| {
        sparse.live_bytes > 0 && sparse.live_bytes * MOST_LIVE.1 <= sparse.len_bytes * MOST_LIVE.0
    };
    let segments = root.objects.iter().filter(|object| object.kind == Kind::Segment);
    let all = segments.map(|object| Sparse {
        id: object.id,
        len_bytes: object.len_bytes,
        live_bytes: object.live_bytes,
    });
    let mut found: Vec<Sparse> = all.filter(is_sparse).collect();
    found.sort_unstable_by_key(|sparse| sparse.live_bytes);
    let mut left = most_bytes;
    let fits = |sparse: &Sparse| {
        left = left.saturating_sub(sparse.live_bytes);
        left > 0
    };
    // One alone is no gain: what is left of it only moves.
    let found: Vec<Sparse> = found.into_iter().take_while(fits).collect();
    if found.len() > 1 { found } else { Vec::new() }
}

/// Rewrites what is left of `segments`, and returns how many bytes that was: none if another
/// checkpoint or a write came first.
pub(crate) fn rewrite(
    content: &Content,
    open: &Mutex<Open>,
    segments: &[Sparse],
) -> Result<u64, ObjectsError> {
    let checkpoint = Arc::clone(&*content.checkpoint.read());
    let mut live = Vec::new();
    for sparse in segments {
        live.extend(left_of(content, &checkpoint, *sparse)?);
    }
    live.sort_unstable_by_key(|extent: &Extent| extent.start);
    if live.is_empty() {
        return Ok(0);
    }
    let (bytes, deltas) = copied(content, &live)?;
    let len = bytes.len() as u64;
    let id = open.lock().new_id();
    let object = segment::seal(id, bytes, &deltas);
    let len_bytes = object.len() as u64;
    content.store.create(&Kind::Segment.name(id), object)?;
    let is_taken = {
        let mut open = open.lock();
        let is_current = Arc::ptr_eq(&checkpoint, &*content.checkpoint.read());
        let is_unchanged =
            || deltas.iter().all(|delta| content.recent.within(delta.range()).is_empty());
        let is_taken = !open.is_closed && is_current && is_unchanged();
        if is_taken {
            for delta in &deltas {
                let place = Place { segment: id, offset: delta.offset };
                content.recent.set(delta.range(), place);
            }
            open.sealed.push(Sealed { id, len_bytes: Arc::new(len_bytes.into()), deltas });
        }
        is_taken
    };
    if !is_taken {
        content.store.delete(&Kind::Segment.name(id))?;
        return Ok(0);
    }
    Ok(len)
}

/// The parts of the device whose content lies in a segment, as `checkpoint` has them, without those
/// that were written since.
fn left_of(
    content: &Content,
    checkpoint: &Checkpoint,
    sparse: Sparse,
) -> Result<Vec<Extent>, ObjectsError> {
    let mut left = Vec::new();
    for delta in segment::read_deltas(&*content.store, sparse.id, sparse.len_bytes)? {
        let found = checkpoint.within(&*content.store, delta.range())?;
        left.extend(found.into_iter().filter(|extent| {
            let range = extent.start..extent.end();
            extent.source.segment == sparse.id && content.recent.within(range).is_empty()
        }));
    }
    Ok(left)
}

/// The content of `extents`, one after the other, and where it lies then.
fn copied(content: &Content, extents: &[Extent]) -> Result<(Vec<u8>, Vec<Delta>), ObjectsError> {
    let total: u64 = extents.iter().map(|extent| extent.len).sum();
    let mut bytes = vec![0; total as usize];
    let (mut into, mut deltas) = (&mut bytes[..], Vec::with_capacity(extents.len()));
    let mut offset = 0;
    for extent in extents {
        let here;
        (here, into) = into.split_at_mut(extent.len as usize);
        content.read_segment(extent.source, here)?;
        deltas.push(Delta { start: extent.start, len: extent.len, offset: Some(offset) });
        offset += extent.len;
    }
    Ok((bytes, deltas))
}
