//! Leases: each says that somebody reads states, and until when.
//!
//! ```text
//!   leases/UUID     magic 8, version, the first state, 1 and the last one or 0 for all later ones, how
//!                   long it holds, the reader; checksum 4, also of the UUID
//! ```
//!
//! # Invariants
//! - No object is deleted that a state needs on which a lease holds. A writer reads the leases after
//!   the store has the manifest that calls an object doomed.
//! - A lease never changes. It holds from the moment at which the store got it, by the store's clock.
//!   A reader that goes on makes another one, and then deletes the one before.
//! - A lease that nobody understands holds on everything, as long as any.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::codec::{Decoder, Encoder, Identity, Malformed};
use crate::each::each;
use crate::error::ObjectsError;
use crate::fetch::{listed, understood};
use crate::map::ObjectRecord;
use crate::store::{Store, Versioned};

pub(crate) const FOLDER: &str = "leases";
const MAGIC: &[u8; 8] = b"LarderOL";
const VERSION: u64 = 1;

/// How long a lease holds, in seconds.
pub(crate) const HOLDS: u64 = 600;

/// No lease holds longer, whatever it says.
const LONGEST: u64 = 24 * 3600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) first: u64,
    /// All later states too, if there is none.
    pub(crate) last: Option<u64>,
    pub(crate) holds: u64,
    pub(crate) reader: String,
}

/// A lease in a store.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// When it ends, by the clock of the store.
    pub(crate) until: u64,
    name: String,
}

pub(crate) fn new_name() -> String {
    format!("{FOLDER}/{}", uuid::Uuid::new_v4())
}

/// What tells a lease from all others.
fn identity(name: &str) -> Identity {
    let (_, uuid) = name.split_once('/').unwrap_or_default();
    let (high, low) = uuid::Uuid::parse_str(uuid).unwrap_or_default().as_u64_pair();
    [high, low]
}

impl Lease {
    /// The object with the name `name`.
    pub(crate) fn encode(&self, name: &str) -> Bytes {
        let mut to = Encoder::default();
        to.raw(MAGIC);
        to.number(VERSION);
        to.number(self.first);
        to.number(u64::from(self.last.is_some()));
        to.number(self.last.unwrap_or(0));
        to.number(self.holds);
        to.text(&self.reader);
        to.sealed_as(identity(name)).into()
    }

    fn decode(bytes: &[u8], name: &str) -> Result<Self, Malformed> {
        if !bytes.starts_with(MAGIC) {
            return Err(Malformed("it is no lease of larder"));
        }
        let mut from = Decoder::unsealed_as(bytes, identity(name))?;
        from.raw(MAGIC.len())?;
        if from.number()? != VERSION {
            return Err(Malformed("a newer version of larder wrote it"));
        }
        let first = from.number()?;
        let has_last = from.number()? != 0;
        let last = Some(from.number()?).filter(|_| has_last);
        let lease = Self { first, last, holds: from.number()?, reader: from.text()? };
        from.end()?;
        Ok(lease)
    }

    /// One that nobody understands.
    fn unknown() -> Self {
        Self { first: 0, last: None, holds: HOLDS, reader: "somebody".to_owned() }
    }

    /// Whether a state on which it holds needs the object.
    pub(crate) fn needs(&self, object: &ObjectRecord) -> bool {
        self.last.is_none_or(|last| object.born <= last)
            && object.died.is_none_or(|died| self.first < died)
    }
}

/// Whether there are leases, perhaps only such that have ended.
pub(crate) fn is_any(store: &dyn Store) -> Result<bool, ObjectsError> {
    Ok(!store.list(FOLDER)?.is_empty())
}

/// The leases in a store, also those that have ended.
pub(crate) fn read(store: &dyn Store) -> Result<Vec<Held>, ObjectsError> {
    listed(|| read_once(store))
}

fn read_once(store: &dyn Store) -> Result<Vec<Held>, ObjectsError> {
    let found = Mutex::new(Vec::new());
    each(
        &store.list(FOLDER)?,
        |listed| {
            let get = || Ok(store.get_versioned(&listed.name)?);
            let decode = |found: &Versioned| {
                Ok((Lease::decode(&found.content, &listed.name)?, found.modified))
            };
            // The time of a reply about another object says nothing.
            let (lease, made) = match understood(store, &listed.name, get, decode) {
                Err(ObjectsError::Damaged { .. }) => (Lease::unknown(), get()?.modified),
                result => result?,
            };
            let until = made.saturating_add(lease.holds.min(LONGEST));
            found.lock().push(Held { lease, until, name: listed.name.clone() });
            Ok(())
        },
        |_| (),
    )?;
    let mut found = found.into_inner();
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// The leases that hold at the time `now`. Those that have ended are deleted: their readers have gone,
/// or have made others.
pub(crate) fn in_force(store: &dyn Store, now: u64) -> Result<Vec<Lease>, ObjectsError> {
    let (held, ended): (Vec<_>, Vec<_>) =
        read(store)?.into_iter().partition(|held| now < held.until);
    for ended in ended {
        if let Err(error) = store.delete(&ended.name) {
            tracing::debug!("{error}; a lease that has ended stays");
        }
    }
    Ok(held.into_iter().map(|held| held.lease).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Kind, ObjectId};
    use crate::pass_on;
    use crate::store::{Directory, StoreError};

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        for last in [None, Some(7)] {
            let lease = Lease { first: 3, last, holds: HOLDS, reader: "process 7".to_owned() };
            let name = new_name();
            let encoded = lease.encode(&name);
            assert_eq!(Lease::decode(&encoded, &name).unwrap(), lease);
            assert!(Lease::decode(&encoded[..encoded.len() - 1], &name).is_err());
            assert!(Lease::decode(&encoded, &new_name()).is_err());
        }
    }

    #[test]
    fn a_lease_holds_on_what_its_states_need() {
        let object = |born, died| ObjectRecord {
            kind: Kind::Segment,
            id: ObjectId::new(1, 1),
            len_bytes: 1,
            live_bytes: 0,
            born,
            died,
            doomed: Some(0),
        };
        let lease = |first, last| Lease { first, last, holds: 1, reader: String::new() };
        let one = lease(5, Some(5));
        assert!(one.needs(&object(5, Some(6))) && one.needs(&object(1, None)));
        assert!(!one.needs(&object(6, Some(8))) && !one.needs(&object(1, Some(5))));
        let all = lease(5, None);
        assert!(all.needs(&object(6, Some(8))) && !all.needs(&object(1, Some(5))));
    }

    /// A store whose first reply is about another object, from long ago.
    #[derive(Debug)]
    struct Mixed(Directory, Mutex<bool>);

    impl Store for Mixed {
        pass_on!(0: name, get, try_create, try_replace, delete, list);

        fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
            let found = self.0.get_versioned(name)?;
            if std::mem::replace(&mut *self.1.lock(), true) {
                return Ok(found);
            }
            let content = Bytes::from_static(b"another");
            Ok(Versioned { content, modified: 0, ..found })
        }
    }

    #[test]
    fn a_reply_about_another_object_ends_no_lease() {
        let folder = tempfile::tempdir().unwrap();
        let store = Mixed(Directory::new(folder.path()), Mutex::new(false));
        let lease = Lease { first: 3, last: None, holds: HOLDS, reader: "process 7".to_owned() };
        let name = new_name();
        store.create(&name, lease.encode(&name)).unwrap();
        let made = store.0.get_versioned(&name).unwrap().modified;
        assert_eq!(in_force(&store, made + HOLDS - 1).unwrap(), [lease]);
        assert_eq!(store.list(FOLDER).unwrap().len(), 1);
    }

    #[test]
    fn what_nobody_understands_holds_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let store = Directory::new(folder.path());
        store.create("leases/x", Bytes::from_static(b"what?")).unwrap();
        let made = store.get_versioned("leases/x").unwrap().modified;
        let [lease] = &*in_force(&store, made + HOLDS - 1).unwrap() else { panic!("it holds") };
        assert_eq!((lease.first, lease.last), (0, None));
        assert!(in_force(&store, made + HOLDS).unwrap().is_empty());
        assert!(store.list(FOLDER).unwrap().is_empty());
    }
}
