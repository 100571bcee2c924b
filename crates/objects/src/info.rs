//! What a device of objects has.

use crate::error::ObjectsError;
use crate::head;
use crate::hold;
use crate::id::Kind;
use crate::lease::{self, Held, Lease};
use crate::map::{Checkpoint, ObjectRecord};
use crate::states::{Policy, State};
use crate::store::{Based, Problem, Store, StoreError};

/// What a device of objects has.
#[derive(Clone, Debug)]
pub struct Info {
    /// The device's length in bytes.
    pub len_bytes: u64,
    /// Its state.
    pub state: State,
    /// How often it has been opened for writing.
    pub epoch: u32,
    /// Who opened it for writing last.
    pub writer: String,
    /// Whether that writer has gone, with all that it wrote in the store.
    pub is_closed: bool,
    /// Which states are kept.
    pub policy: Policy,
    /// How long objects that no kept state needs stay for readers, in seconds.
    pub delete_after: u64,
    /// The kept states, oldest first.
    pub states: Vec<State>,
    /// Objects with content: how many, their length in bytes, and how much of that the last
    /// checkpoint needs.
    pub segments: (u64, u64, u64),
    /// Map objects, likewise.
    pub maps: (u64, u64, u64),
    /// Objects that wait to be deleted.
    pub doomed: u64,
    /// The way to where this was cloned from, if it was.
    pub origin: Option<String>,
    /// The clones of states of this: the way to each, and the state's number.
    pub clones: Vec<(String, u64)>,
    /// The leases of readers.
    pub leases: Vec<LeaseInfo>,
}

/// A lease: somebody reads states, which stay until it ends. Readers that go on make another one
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The process that reads, and its machine.
    pub reader: String,
    /// The first state.
    pub first: u64,
    /// The last one; if there is none, it holds on all later ones.
    pub last: Option<u64>,
    /// When it ends, by the clock of the store.
    pub until: u64,
}

/// What the device in `store` has.
///
/// # Errors
/// [`ObjectsError::Missing`], and those of the store.
pub fn info(store: &dyn Store) -> Result<Info, ObjectsError> {
    let manifest = head::read(store)?;
    let store = &Based::new(store, manifest.bases.clone());
    let all = Checkpoint::load(store, manifest.root)?.read_objects(store)?;
    let holds = if_listed(hold::read(store))?;
    let leases = if_listed(lease::read(store))?.into_iter().map(|Held { lease, until, .. }| {
        let Lease { reader, first, last, .. } = lease;
        LeaseInfo { reader, first, last, until }
    });
    let clones = holds.into_iter().map(|hold| (hold.path, hold.state)).collect();
    let of_maps = |is_map| {
        let is_wanted = move |object: &&ObjectRecord| {
            (object.kind == Kind::Map) == is_map && object.doomed.is_none()
        };
        let objects = all.iter().filter(is_wanted);
        objects.fold((0, 0, 0), |(count, len_bytes, live_bytes), object| {
            (count + 1, len_bytes + object.len_bytes, live_bytes + object.live_bytes)
        })
    };
    let mut segments = of_maps(false);
    for segment in &manifest.tail {
        let content = segment.deltas.iter().filter(|delta| delta.offset.is_some());
        let live: u64 = content.map(|delta| delta.len).sum();
        segments = (segments.0 + 1, segments.1 + segment.len_bytes, segments.2 + live);
    }
    Ok(Info {
        len_bytes: manifest.len_bytes,
        state: manifest.state(),
        epoch: manifest.epoch,
        writer: manifest.writer.to_string(),
        is_closed: manifest.writer.is_done,
        policy: manifest.policy,
        delete_after: manifest.delete_after,
        states: manifest.states().collect(),
        segments,
        maps: of_maps(true),
        origin: manifest.bases.last().map(|base| base.path.clone()),
        clones,
        leases: leases.collect(),
        doomed: all.iter().filter(|object| object.doomed.is_some()).count() as u64,
    })
}

/// What a list led to; nothing, if there are no lists: a web server has none, and keys may not be for
/// them.
fn if_listed<T>(found: Result<Vec<T>, ObjectsError>) -> Result<Vec<T>, ObjectsError> {
    match found {
        Err(ObjectsError::Store(StoreError {
            problem: Problem::Unsupported | Problem::Denied,
            ..
        })) => Ok(Vec::new()),
        result => result,
    }
}
