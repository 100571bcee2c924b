//! Removing streams, and parts that no stream needs.

use std::collections::{HashMap, HashSet};

use super::catalogue::{Catalogue, Stream, StreamId, Unfinished};
use super::part::{INDEXES, Index, IndexName, PARTS, Part};
use crate::error::ObjectsError;
use crate::probe;
use crate::store::{Listed, Store};

/// What is pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pruning {
    /// No stream: only the parts that no stream needs.
    Nothing,
    /// These streams.
    These {
        /// Which.
        streams: Vec<StreamId>,
        /// Also those that cannot be received without them. Otherwise they are an error.
        with_dependents: bool,
    },
    /// All but the newest ones, so many, and those that they need.
    AllBut(usize),
}

/// What was pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The streams that the catalogue no longer has.
    pub removed: Vec<Stream>,
    /// Streams that stay only since others need them.
    pub needed: Vec<Stream>,
    /// Interrupted sends that were forgotten.
    pub forgotten: u64,
    /// Objects that were deleted.
    pub deleted: u64,
}

/// Removes streams from the catalogue, and interrupted sends that showed no life for
/// `forget_after` seconds. Then deletes the objects that nothing in the catalogue needs. `tell` gets
/// the number of deleted ones, and that of all.
///
/// # Errors
/// [`ObjectsError::Needed`] if a stream that stays needs one that was to go; then nothing has
/// changed. [`ObjectsError::NoStreams`], and those of the store.
pub fn prune(
    store: &dyn Store,
    pruning: &Pruning,
    forget_after: u64,
    mut tell: impl FnMut(u64, u64) + Send,
) -> Result<Pruned, ObjectsError> {
    Catalogue::load(store)?;
    // Before the catalogue: what is registered later is not in these lists.
    let listed = [store.list(PARTS)?, store.list(INDEXES)?].concat();
    let now = probe::conditions(store)?.now();
    // A change whose reply was lost is tried anew, and finds nothing left to remove.
    let (mut removed, mut forgotten) = (Vec::<Stream>::new(), HashSet::new());
    let (catalogue, needed, confirmed) = Catalogue::change_for_sure(store, |catalogue| {
        let (going, needed) = choose(store, catalogue, pruning)?;
        let going = catalogue.streams.extract_if(.., |stream| going.contains(&stream.id));
        for stream in going {
            if !removed.iter().any(|known| known.id == stream.id) {
                removed.push(stream);
            }
        }
        let is_old = |it: &mut Unfinished| now.saturating_sub(it.time) >= forget_after;
        forgotten.extend(catalogue.unfinished.extract_if(.., is_old).map(|it| it.id));
        Ok(needed)
    })?;
    forgotten.retain(|id| !catalogue.knows(*id));
    removed.retain(|stream| !catalogue.knows(stream.id));
    let unneeded = unneeded(store, &catalogue, &listed)?;
    let deleted = unneeded.len() as u64;
    confirmed.delete_each(store, &unneeded, |done| tell(done, deleted))?;
    Ok(Pruned { removed, needed, forgotten: forgotten.len() as u64, deleted })
}

/// The streams that go, and those that stay only since others need them.
fn choose(
    store: &dyn Store,
    catalogue: &Catalogue,
    pruning: &Pruning,
) -> Result<(HashSet<StreamId>, Vec<Stream>), ObjectsError> {
    let streams = &catalogue.streams;
    let ids = |streams: &[Stream]| streams.iter().map(|it| it.id).collect::<HashSet<_>>();
    let mut going = match pruning {
        Pruning::Nothing => HashSet::new(),
        Pruning::These { streams, .. } => streams.iter().copied().collect(),
        Pruning::AllBut(newest) => ids(&streams[..streams.len().saturating_sub(*newest)]),
    };
    let mut needed = HashSet::new();
    while let Some((stream, needs)) = first_need(streams, &going) {
        match pruning {
            Pruning::AllBut(_) => {
                going.remove(&needs.id);
                needed.insert(needs.id);
            }
            Pruning::These { with_dependents: true, .. } => {
                going.insert(stream.id);
            }
            _ => {
                let (stream, needs) = (named(stream), named(needs));
                let needed = format!("{stream} builds on {needs}");
                return Err(ObjectsError::Needed { store: store.name().to_owned(), needed });
            }
        }
    }
    let needed = streams.iter().filter(|stream| needed.contains(&stream.id)).cloned();
    Ok((going, needed.collect()))
}

/// A stream that stays, and one that goes without which it cannot be received.
fn first_need<'a>(
    streams: &'a [Stream],
    going: &HashSet<StreamId>,
) -> Option<(&'a Stream, &'a Stream)> {
    let mut makers: HashMap<_, &Stream> = HashMap::new();
    for stream in streams {
        let uuid = stream.description.snapshot.uuid;
        let known = makers.entry(uuid).or_insert(stream);
        // One that stays comes first, and then the newest.
        if !going.contains(&stream.id) || going.contains(&known.id) {
            *known = stream;
        }
    }
    let staying = streams.iter().filter(|stream| !going.contains(&stream.id));
    let mut needs = staying.flat_map(|stream| {
        let makers = stream.description.needs().filter_map(|need| makers.get(&need.uuid));
        makers.map(move |maker| (stream, *maker)).collect::<Vec<_>>()
    });
    needs.find(|(_, maker)| going.contains(&maker.id))
}

fn named(stream: &Stream) -> String {
    format!("{} ({})", stream.name, stream.id)
}

/// The names of those of the listed objects that nothing in the catalogue needs.
fn unneeded(
    store: &dyn Store,
    catalogue: &Catalogue,
    listed: &[Listed],
) -> Result<Vec<String>, ObjectsError> {
    let streams: HashMap<_, _> = catalogue.streams.iter().map(|it| (it.id, it)).collect();
    let mut parts: HashMap<StreamId, Vec<Part>> = HashMap::new();
    let mut unneeded = Vec::new();
    for object in listed {
        if let Some(part) = Part::parse(&object.name) {
            parts.entry(part.stream).or_default().push(part);
        } else if let Some(index) = IndexName::parse(&object.name) {
            let is_other = |stream: &&Stream| stream.index != index.checksum;
            if !catalogue.knows(index.stream) || streams.get(&index.stream).is_some_and(is_other) {
                unneeded.push(index.name());
            }
        }
    }
    for (id, parts) in parts {
        match streams.get(&id) {
            Some(stream) if parts.len() as u64 > stream.parts() => {
                let index = Index::fetch(store, stream)?;
                let needed: HashSet<_> = index.parts(stream).map(|(part, _)| part).collect();
                let others = parts.iter().filter(|part| !needed.contains(part));
                unneeded.extend(others.map(Part::name));
            }
            None if !catalogue.knows(id) => unneeded.extend(parts.iter().map(Part::name)),
            _ => {}
        }
    }
    Ok(unneeded)
}
