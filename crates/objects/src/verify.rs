//! Whether all that the kept states need is as it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::copies;
use crate::each::each;
use crate::error::ObjectsError;
use crate::head;
use crate::id::{Kind, ObjectId};
use crate::manifest::Manifest;
use crate::map::{Checkpoint, ObjectRecord, PageRef, RootRef};
use crate::reading::Reading;
use crate::segment;
use crate::store::{Based, Problem, Store};

/// What a verification has read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The bytes of segments that are as they were written.
    pub bytes: u64,
    /// What is not.
    pub findings: Vec<Finding>,
}

/// An object, or a part of one, that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong, with the object's name.
    pub problem: String,
    /// The first and the last kept state that need it, and how many there are. None need the
    /// manifest while it has a copy, or a copy.
    pub states: Option<(u64, u64, usize)>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, states } = self;
        match states {
            Some((one, _, 1)) => write!(f, "{problem} (state {one} needs it)"),
            Some((first, last, count)) => {
                write!(f, "{problem} ({count} states from {first} to {last} need it)")
            }
            None => write!(f, "{problem}"),
        }
    }
}

/// Reads every object that a kept state needs and compares it with its checksums. `tell` learns
/// how many bytes of segments of how many are done.
///
/// # Errors
/// Those of the manifest, and of a store that cannot be read at this time. What is missing or
/// damaged is a finding.
pub fn verify(
    store: &Arc<dyn Store>,
    mut tell: impl FnMut(u64, u64) + Send,
) -> Result<Verified, ObjectsError> {
    // Nothing goes that any kept state needs, however long it takes.
    let reading = Reading::begin(store);
    let (manifest, first, since) = reading.look(|manifest| {
        let first = first_state(manifest);
        Ok((first, first))
    })?;
    let _read = reading.note(first, &manifest, since);
    reading.follow();
    let store = &Based::new(&**store, manifest.bases.clone());
    let findings = Mutex::new(Vec::new());
    let checkpoints = verify_maps(store, &manifest, &findings)?;
    // The last checkpoint knows all objects that it or an earlier state needs.
    let objects = match checkpoints.last() {
        Some(Used { checkpoint, states }) => {
            noted(checkpoint.read_objects(store), states, &findings)?.unwrap_or_default()
        }
        None => Vec::new(),
    };
    let segments = segments_of(&manifest, &objects);
    let total: u64 = segments.values().map(|segment| segment.len_bytes).sum();
    let segments: Vec<_> = segments.into_iter().collect();
    let (mut done, wrong) = (0, Mutex::new(0));
    each(
        &segments,
        |(id, segment)| {
            let result = segment::verify(store, *id, segment.len_bytes);
            if noted(result, &segment.states, &findings)?.is_none() {
                *wrong.lock() += segment.len_bytes;
            }
            Ok(())
        },
        |(_, segment)| {
            done += segment.len_bytes;
            tell(done, total);
        },
    )?;
    let mut findings = findings.into_inner();
    // Its copy was read instead.
    if let Err(error @ ObjectsError::Damaged { .. }) = head::read_manifest(store) {
        findings.push(Finding { problem: error.to_string(), states: None });
    }
    for problem in copies::verify(store)? {
        findings.push(Finding { problem, states: None });
    }
    Ok(Verified { bytes: total - wrong.into_inner(), findings })
}

fn first_state(manifest: &Manifest) -> u64 {
    manifest.states().next().map_or(0, |state| state.number)
}

/// A checkpoint, and the kept states that begin with it.
struct Used {
    checkpoint: Checkpoint,
    states: Vec<u64>,
}

/// Reads the pages of all checkpoints. Those that cannot be read are findings.
fn verify_maps(
    store: &dyn Store,
    manifest: &Manifest,
    findings: &Mutex<Vec<Finding>>,
) -> Result<Vec<Used>, ObjectsError> {
    let earlier = manifest.earlier.iter().map(|era| (era.root, &era.marks));
    let mut roots: Vec<(Option<RootRef>, Vec<u64>)> = Vec::new();
    for (root, marks) in earlier.chain([(manifest.root, &manifest.marks)]) {
        roots.push((root, marks.iter().map(|mark| mark.state.number).collect()));
    }
    let mut used = Vec::new();
    for (root, states) in roots {
        if let Some(checkpoint) = noted(Checkpoint::load(store, root), &states, findings)? {
            used.push(Used { checkpoint, states });
        }
    }
    let mut pages: BTreeMap<(ObjectId, u64), (usize, usize, Vec<u64>)> = BTreeMap::new();
    for (at, Used { checkpoint, states }) in used.iter().enumerate() {
        for (index, PageRef { object, offset, .. }) in checkpoint.pages.iter().enumerate() {
            let page = pages.entry((*object, *offset)).or_insert((at, index, Vec::new()));
            page.2.extend(states);
        }
    }
    let pages: Vec<_> = pages.into_values().collect();
    each(
        &pages,
        |(at, index, states)| {
            let result = used[*at].checkpoint.read_page(store, *index);
            noted(result, states, findings).map(drop)
        },
        |_| (),
    )?;
    Ok(used)
}

/// A segment that kept states need.
struct Needed {
    len_bytes: u64,
    states: Vec<u64>,
}

fn segments_of(manifest: &Manifest, objects: &[ObjectRecord]) -> BTreeMap<ObjectId, Needed> {
    let kept: BTreeSet<u64> = manifest.states().map(|state| state.number).collect();
    let mut segments = BTreeMap::new();
    let mut add = |id, len_bytes, states: &mut dyn Iterator<Item = u64>| {
        let segment = segments.entry(id).or_insert(Needed { len_bytes, states: Vec::new() });
        segment.states.extend(states);
        segment.states.sort_unstable();
        segment.states.dedup();
    };
    let is_needed = |it: &&ObjectRecord| it.kind != Kind::Map && it.doomed.is_none();
    for object in objects.iter().filter(is_needed) {
        let needed = object.born..object.died.unwrap_or(u64::MAX).max(object.born);
        let mut states = kept.range(needed).copied().peekable();
        // A clone's list has what only earlier states of its origin needed.
        if states.peek().is_some() {
            add(object.id, object.len_bytes, &mut states);
        }
    }
    for segment in &manifest.tail {
        add(segment.id, segment.len_bytes, &mut kept.range(segment.born..).copied());
    }
    for era in &manifest.earlier {
        for (index, (id, len_bytes)) in era.segments.iter().enumerate() {
            let uses = |mark: &&crate::manifest::Mark| mark.segments > index as u64;
            let states = era.marks.iter().filter(uses).map(|mark| mark.state.number);
            add(*id, *len_bytes, &mut states.into_iter());
        }
    }
    segments
}

/// Makes a finding of what is missing or damaged; `None` then.
fn noted<T>(
    result: Result<T, ObjectsError>,
    states: &[u64],
    findings: &Mutex<Vec<Finding>>,
) -> Result<Option<T>, ObjectsError> {
    let is_for_now = |error: &ObjectsError| match error {
        ObjectsError::Store(error) => error.problem == Problem::Temporary,
        _ => false,
    };
    let error = match result {
        Ok(found) => return Ok(Some(found)),
        Err(error) if is_for_now(&error) => return Err(error),
        Err(error) => error,
    };
    let (first, last) = (states.iter().min(), states.iter().max());
    let states = first.zip(last).map(|(first, last)| (*first, *last, states.len()));
    findings.lock().push(Finding { problem: error.to_string(), states });
    Ok(None)
}
