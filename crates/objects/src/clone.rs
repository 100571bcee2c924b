//! Clones: devices that begin with a state of another one, and share its objects.
//!
//! # Invariants
//! - The epochs of a clone are later than those of its origin at the time. Objects of earlier
//!   epochs lie at the origin, where the clone never changes or deletes anything.
//! - A hold at the origin keeps what the state needs, as long as the clone is there.
//! - A copy of the origin's manifest knows the objects of the state. Otherwise the origin, if it was
//!   rebuilt without that manifest, would take them for garbage that nobody has known.

use crate::error::ObjectsError;
use crate::head;
use crate::head::find_state;
use crate::hold::Hold;
use crate::id::ObjectId;
use crate::manifest::{self, Base, Manifest, Mark};
use crate::ownership::this_process;
use crate::past::Past;
use crate::probe;
use crate::state_name::StateName;
use crate::states::State;
use crate::store::{Based, Store};

/// A place, and the way there from the other one: `../photos`.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The objects there.
    pub store: &'a dyn Store,
    /// Parts `..`, and then names.
    pub way: &'a str,
}

/// Makes a device at `clone` that begins with a kept state of the device at `origin`, the last one
/// if there is no `state`. Both change independently from then on.
///
/// # Errors
/// [`ObjectsError::Missing`], [`ObjectsError::NoSuchState`], [`ObjectsError::Exists`],
/// [`ObjectsError::Unconditional`], [`ObjectsError::OnlyForReading`], and those of the stores.
pub fn clone(
    origin: Beside<'_>,
    clone: Beside<'_>,
    state: Option<&StateName>,
) -> Result<State, ObjectsError> {
    let clock = probe::conditions(clone.store)?;
    let manifest = head::read(origin.store)?;
    let state = chosen(origin.store, &manifest, state)?;
    let uuid = uuid::Uuid::new_v4().into_bytes();
    let hold = Hold { uuid, state: state.number, path: clone.way.to_owned() };
    origin.store.create(&hold.name(), hold.encode())?;
    let result = finish(origin, clone, state, uuid, clock.now());
    if result.is_err() {
        // One that stays costs space at the origin, and nothing else.
        let _ = origin.store.delete(&hold.name());
    }
    result.map(|()| state)
}

fn chosen(
    store: &dyn Store,
    manifest: &Manifest,
    name: Option<&StateName>,
) -> Result<State, ObjectsError> {
    name.map_or(Ok(manifest.state()), |name| find_state(store, manifest, name))
}

/// Makes the clone. The store has the hold.
fn finish(
    origin: Beside<'_>,
    clone: Beside<'_>,
    state: State,
    uuid: [u8; 16],
    now: u64,
) -> Result<(), ObjectsError> {
    // The origin may have forgotten the state before it could see the hold.
    let manifest = head::read(origin.store)?;
    let state = find_state(origin.store, &manifest, &StateName::Number(state.number))?;
    head::copy(origin.store)?;
    let Past { checkpoint, tail } =
        Past::read(&Based::new(origin.store, manifest.bases.clone()), &manifest, state)?;
    let further = manifest
        .bases
        .iter()
        .map(|base| Base { last_epoch: base.last_epoch, path: joined(origin.way, &base.path) });
    let own = Base { last_epoch: manifest.epoch, path: origin.way.to_owned() };
    let epoch = manifest.epoch.checked_add(1).ok_or_else(|| {
        ObjectsError::damaged(origin.store, manifest::NAME, &"it was opened too often")
    })?;
    let mut writer = this_process(now);
    writer.is_done = true;
    let new = Manifest {
        uuid,
        number: 0,
        bases: further.chain([own]).collect(),
        epoch,
        next_flush: ObjectId::first_flush(epoch),
        writer,
        earlier: Vec::new(),
        root: checkpoint.at,
        marks: vec![Mark { state, segments: tail.len() as u64 }],
        tail,
        len_bytes: manifest.len_bytes,
        policy: manifest.policy,
        delete_after: manifest.delete_after,
    };
    head::create_first(clone.store, &new)
}

/// The way `next` from the place to which `way` leads.
fn joined(way: &str, next: &str) -> String {
    let mut parts: Vec<&str> = way.split('/').collect();
    for part in next.split('/') {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_go_on() {
        assert_eq!(joined("../b", "../a"), "../a");
        assert_eq!(joined("../../x/b", "../../a"), "../../a");
        assert_eq!(joined("../b", "../../../a"), "../../../a");
    }
}
