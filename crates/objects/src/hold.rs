//! Holds: each says that a clone needs a state, which its origin may keep no longer.
//!
//! ```text
//!   holds/UUID      magic 8, version, the state, the way to the clone; checksum 4
//! ```
//! The UUID is that of the clone.
//!
//! # Invariants
//! - No object is deleted that a held state needs. A writer reads the holds after the store has the
//!   manifest that calls an object doomed. A clone begins with its hold, and then looks whether the
//!   state is kept: if it is, the writer will see the hold.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::each::each;
use crate::error::ObjectsError;
use crate::fetch::{ATTEMPTS, listed, understood};
use crate::lease;
use crate::manifest::{self, Manifest};
use crate::map::ObjectRecord;
use crate::store::{Problem, Store, Versioned};

pub(crate) const FOLDER: &str = "holds";
const MAGIC: &[u8; 8] = b"LarderOH";
const VERSION: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Of the clone.
    pub(crate) uuid: [u8; 16],
    pub(crate) state: u64,
    /// The way to the clone.
    pub(crate) path: String,
}

/// The name of the hold of a clone.
pub(crate) fn name(clone: [u8; 16]) -> String {
    format!("{FOLDER}/{}", uuid::Uuid::from_bytes(clone))
}

impl Hold {
    pub(crate) fn name(&self) -> String {
        name(self.uuid)
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut to = Encoder::default();
        to.raw(MAGIC);
        to.number(VERSION);
        to.raw(&self.uuid);
        to.number(self.state);
        to.text(&self.path);
        to.sealed().into()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if !bytes.starts_with(MAGIC) {
            return Err(Malformed("it is no hold of larder"));
        }
        let mut from = Decoder::unsealed(bytes)?;
        from.raw(MAGIC.len())?;
        if from.number()? != VERSION {
            return Err(Malformed("a newer version of larder wrote it"));
        }
        let hold = Self { uuid: from.array()?, state: from.number()?, path: from.text()? };
        from.end()?;
        Ok(hold)
    }

    /// Whether the state needs an object.
    fn needs(&self, object: &ObjectRecord) -> bool {
        object.born <= self.state && object.died.is_none_or(|died| self.state < died)
    }
}

/// The holds in a store.
pub(crate) fn read(store: &dyn Store) -> Result<Vec<Hold>, ObjectsError> {
    listed(|| read_once(store))
}

fn read_once(store: &dyn Store) -> Result<Vec<Hold>, ObjectsError> {
    let found = Mutex::new(Vec::new());
    each(
        &store.list(FOLDER)?,
        |listed| {
            let get = || Ok(store.get_versioned(&listed.name)?);
            let decode = |found: &Versioned| match Hold::decode(&found.content)? {
                hold if hold.name() == listed.name => Ok(hold),
                _ => Err(Malformed("it is the hold of another clone")),
            };
            found.lock().push(understood(store, &listed.name, get, decode)?);
            Ok(())
        },
        |_| (),
    )?;
    let mut found = found.into_inner();
    found.sort_unstable_by_key(|hold: &Hold| (hold.state, hold.uuid));
    Ok(found)
}

/// Those of `doomed` that no held state needs at the time `now`: they may be deleted. The store has
/// the manifest that calls them doomed.
pub(crate) fn not_held(
    store: &dyn Store,
    mut doomed: Vec<ObjectRecord>,
    now: u64,
) -> Result<Vec<ObjectRecord>, ObjectsError> {
    if !doomed.is_empty() {
        let (holds, leases) = (read(store)?, lease::in_force(store, now)?);
        let is_held = |object: &ObjectRecord| {
            holds.iter().any(|hold| hold.needs(object))
                || leases.iter().any(|lease| lease.needs(object))
        };
        doomed.retain(|object| !is_held(object));
    }
    Ok(doomed)
}

/// The holds of clones that are not where they were made. A single reply that says so may be wrong.
pub(crate) fn of_missing(store: &dyn Store) -> Result<Vec<Hold>, ObjectsError> {
    let mut missing = Vec::new();
    for hold in read(store)? {
        let name = format!("{}/{}", hold.path, manifest::NAME);
        let is_there = || match store.get_versioned(&name) {
            Ok(found) => Ok(Manifest::decode(&found.content).is_ok_and(|it| it.uuid == hold.uuid)),
            Err(error) if error.problem == Problem::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let mut is_missing = true;
        for _ in 0..ATTEMPTS {
            is_missing &= !is_there()?;
        }
        if is_missing {
            missing.push(hold);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::store::{Directory, Layer, StoreError};

    /// Says of each object once that it is not there.
    #[derive(Debug)]
    struct Forgetful(Directory, Mutex<HashSet<String>>);

    impl Layer for Forgetful {
        type Below = Directory;

        fn below(&self) -> &Directory {
            &self.0
        }

        fn pass<T>(
            &self,
            name: &str,
            call: impl Fn(&Directory) -> Result<T, StoreError>,
        ) -> Result<T, StoreError> {
            if name.contains('/') && self.1.lock().insert(name.to_owned()) {
                return Err(StoreError::new(
                    Problem::NotFound,
                    self.0.name(),
                    name,
                    "it is not there",
                ));
            }
            call(&self.0)
        }
    }

    #[test]
    fn a_wrong_reply_lets_no_hold_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = Forgetful(Directory::new(folder.path()), Mutex::default());
        let holds: Vec<_> = (1..4)
            .map(|state| Hold { uuid: [state as u8; 16], state, path: "../clone".to_owned() })
            .collect();
        for hold in &holds {
            store.0.create(&hold.name(), hold.encode()).unwrap();
        }
        assert_eq!(read(&store).unwrap(), holds);
    }
}
