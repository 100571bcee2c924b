//! Rewriting light objects: those of which little is needed, so that they can go, and small ones, so
//! that objects are few.
//!
//! # Invariants
//! - A new segment has content that the checkpoint has, too. It counts as older than all that was
//!   written since the checkpoint, so that it hides none of that; and it is not used after another
//!   checkpoint.
//! - The new segment is in the store before a manifest names it. No flush waits for it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::content::Content;
use crate::error::ObjectsError;
use crate::flush;
use crate::id::{Kind, ObjectId};
use crate::manifest::Manifest;
use crate::map::{Checkpoint, Delta, Extent, ObjectRecord, Place};
use crate::segment;
use crate::writer::{Commit, Open};

/// An object is light when this part of a full segment is needed of it, or less.
const LIGHT_PART: u64 = 4;

/// An object is sparse when this part of it, or less, is needed.
const SPARSE_PART: u64 = 4;

/// So many light objects are worth rewriting, even if nothing of them can go.
const MANY: usize = 64;

/// An object with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Light {
    id: ObjectId,
    len_bytes: u64,
    live_bytes: u64,
    born: u64,
}

impl Light {
    fn is_sparse(&self) -> bool {
        self.live_bytes * SPARSE_PART <= self.len_bytes
    }
}

/// The light objects of a checkpoint that are worth rewriting now: many that were there at the state
/// `settled`, or some of which little is needed. Each group becomes one segment.
pub(crate) fn worthwhile(
    objects: &[ObjectRecord],
    manifest: &Manifest,
    segment_bytes: u64,
    settled: u64,
) -> Vec<Vec<Light>> {
    let mut light = all_light(objects, manifest, segment_bytes);
    let old = light.iter().filter(|it| it.born <= settled).count();
    if old >= MANY {
        light.retain(|it| it.born <= settled);
    } else {
        light.retain(Light::is_sparse);
    }
    grouped(light, segment_bytes)
}

/// All light objects of a checkpoint.
pub(crate) fn all(
    objects: &[ObjectRecord],
    manifest: &Manifest,
    segment_bytes: u64,
) -> Vec<Vec<Light>> {
    grouped(all_light(objects, manifest, segment_bytes), segment_bytes)
}

fn all_light(objects: &[ObjectRecord], manifest: &Manifest, segment_bytes: u64) -> Vec<Light> {
    // What lies at the origin takes no space here.
    let is_own = |it: &&ObjectRecord| !manifest.is_elsewhere(it.id.epoch());
    let with_content = objects.iter().filter(|it| it.kind != Kind::Map).filter(is_own);
    let all = with_content.map(|object| Light {
        id: object.id,
        len_bytes: object.len_bytes,
        live_bytes: object.live_bytes,
        born: object.born,
    });
    let is_light = |it: &Light| it.live_bytes > 0 && it.live_bytes * LIGHT_PART <= segment_bytes;
    all.filter(is_light).collect()
}

/// Groups of objects in their order, each with as much content as a segment has, or a little more.
fn grouped(light: Vec<Light>, segment_bytes: u64) -> Vec<Vec<Light>> {
    let mut groups: Vec<Vec<Light>> = Vec::new();
    let mut bytes = segment_bytes;
    for it in light {
        if bytes >= segment_bytes {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += it.live_bytes;
        groups.last_mut().expect("there is one").push(it);
    }
    // One alone is no gain: what is left of it only moves.
    groups.retain(|group| group.len() > 1);
    groups
}

/// Rewrites what `checkpoint` needs of the objects `group`, unless another checkpoint comes first.
/// Returns whether none came.
pub(crate) fn rewrite(
    content: &Content,
    checkpoint: &Arc<Checkpoint>,
    open: &Mutex<Open>,
    commit: &Mutex<Commit>,
    group: &[Light],
) -> Result<bool, ObjectsError> {
    let is_current = || Arc::ptr_eq(checkpoint, &*content.checkpoint.read());
    let mut live = Vec::new();
    for light in group {
        if !is_current() {
            return Ok(false);
        }
        live.extend(left_of(content, checkpoint, *light)?);
    }
    live.sort_unstable_by_key(|extent: &Extent| extent.start);
    if live.is_empty() {
        return Ok(true);
    }
    let (bytes, deltas) = copied(content, &live)?;
    let id = open.lock().new_id();
    let object = segment::seal(id, bytes, &deltas);
    let len_bytes = object.len() as u64;
    content.store.create(&id.name(), object)?;
    let mut commit = commit.lock();
    if commit.is_closed || !is_current() {
        drop(commit);
        content.store.delete(&id.name())?;
        return Ok(false);
    }
    let _no_writer = open.lock();
    for delta in &deltas {
        let place = Place { segment: id, offset: delta.offset };
        content.recent.set_unknown(delta.range(), place);
    }
    commit.adopt(id, len_bytes, deltas);
    Ok(true)
}

/// The parts of the device whose content lies in an object, as `checkpoint` has them, without those
/// that were written since.
fn left_of(
    content: &Content,
    checkpoint: &Checkpoint,
    light: Light,
) -> Result<Vec<Extent>, ObjectsError> {
    let mut left = Vec::new();
    let deltas = if light.id.kind() == Kind::Flush {
        // Its content came along, and is copied next.
        let flush = flush::read(&*content.store, light.id)?;
        content.cache.keep_flush(light.id, flush.content);
        flush.deltas
    } else {
        segment::read_deltas(&*content.store, light.id, light.len_bytes)?
    };
    for delta in deltas {
        let found = checkpoint.within(&*content.store, delta.range())?;
        left.extend(found.into_iter().filter(|extent| {
            let range = extent.start..extent.end();
            extent.source.segment == light.id && content.recent.within(range).is_empty()
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
