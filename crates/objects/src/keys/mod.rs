//! Keys of what is encrypted.
//!
//! All objects below a prefix are sealed with keys that follow from one *data key*, random numbers.
//! The object [`NAME`] has the data key in several slots, each of them sealed with a *secret* of a
//! user. So secrets come and go, and no other object changes.
//!
//! # Invariants
//! - Nothing else is read or written below a prefix before the data key is known, or it is known
//!   that nothing there is encrypted and that the user gives no secret.
//! - The data key leaves this process in slots only.

mod ring;
mod secret;

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;
use zeroize::Zeroizing;

use self::ring::Ring;
pub use self::ring::Slot;
pub use self::secret::KeySource;
use crate::clock;
use crate::error::ObjectsError;
use crate::fetch::understood;
use crate::store::{Encrypted, Problem, Store, Versioned};
use crate::{manifest, streams};

/// The object with the slots.
pub(crate) const NAME: &str = "keys";

const KEY_BYTES: usize = 32;

/// So often another process may change the slots at the same time.
const MOST_ATTEMPTS: usize = 100;

/// What seals the objects below a prefix.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; KEY_BYTES]>);

impl DataKey {
    /// A new one.
    pub fn random() -> Self {
        Self(Zeroizing::new(random()))
    }

    /// The key for a purpose.
    pub(crate) fn derived(&self, purpose: &str) -> [u8; KEY_BYTES] {
        hmac(&self.0, purpose.as_bytes())
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// The HMAC-SHA256 of `message`.
pub(crate) fn hmac(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; 32] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    hmac.update(message);
    hmac.finalize().into_bytes().into()
}

fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// The slots below a prefix, which lie in `store`.
#[derive(Debug)]
pub struct Keys {
    store: Arc<dyn Store>,
}

impl Keys {
    /// Those in `store`, which is the one below the encryption.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Whether anything is encrypted there, as far as the store says.
    pub(crate) fn are_there(&self) -> bool {
        self.find().is_ok_and(|found| found.is_some())
    }

    /// What a secret, if there is one, opens there: the store itself, if nothing is encrypted.
    pub(crate) fn open(self, source: Option<&KeySource>) -> Result<Arc<dyn Store>, ObjectsError> {
        let store_name = || self.store.name().to_owned();
        let found = match self.find() {
            // Some servers refuse what they have not.
            Err(ObjectsError::Store(error))
                if error.problem == Problem::Denied && source.is_none() =>
            {
                None
            }
            found => found?,
        };
        match (found, source) {
            (None, None) => Ok(self.store),
            (Some(_), None) => Err(ObjectsError::NoKey { store: store_name() }),
            (None, Some(source)) => {
                Err(ObjectsError::NotEncrypted { store: store_name(), name: source.name() })
            }
            (Some((ring, _)), Some(source)) => {
                let key = self.unlock(&ring, source)?;
                Ok(Arc::new(Encrypted::new(self.store, &key)))
            }
        }
    }

    /// Makes a data key, of which the secret of `source` has the first slot. What is written there
    /// from now on is encrypted. Does nothing if that secret opens what is there.
    ///
    /// # Errors
    /// [`ObjectsError::NotEmpty`] if something is there that is not encrypted;
    /// [`ObjectsError::NoKey`], [`ObjectsError::WrongKey`], and those of the store.
    pub fn create(&self, source: Option<&KeySource>) -> Result<(), ObjectsError> {
        let store = || self.store.name().to_owned();
        let source = source.ok_or_else(|| ObjectsError::NoKey { store: store() })?;
        if self.find()?.is_none() {
            for name in [manifest::NAME, streams::CATALOGUE] {
                match self.store.get_versioned(name) {
                    Ok(_) => return Err(ObjectsError::NotEmpty { store: store() }),
                    Err(error) if error.problem == Problem::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let secret = source.read()?;
            let slot = Slot::new(&DataKey::random(), &secret, "", clock::now())?;
            match self.store.create(NAME, Ring(vec![slot]).encode()) {
                // Somebody else was faster.
                Err(error) if error.problem == Problem::Condition => {}
                result => return Ok(result?),
            }
        }
        let (ring, _) = self.load()?;
        self.unlock(&ring, source).map(drop)
    }

    /// Gives an empty place the data key that is here, in the same slots, for a clone. Does nothing if
    /// nothing is encrypted here.
    ///
    /// # Errors
    /// [`ObjectsError::Exists`] if a device is there; and those of the stores.
    pub fn copy_to(&self, other: &Self) -> Result<(), ObjectsError> {
        let Some((ring, _)) = self.find()? else { return Ok(()) };
        let exists = || ObjectsError::Exists { store: other.store.name().to_owned() };
        match other.store.get_versioned(manifest::NAME) {
            Ok(_) => return Err(exists()),
            Err(error) if error.problem == Problem::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        match other.store.create(NAME, ring.encode()) {
            Err(error) if error.problem == Problem::Condition => Err(exists()),
            result => Ok(result?),
        }
    }

    /// The slots, oldest first, and which of them the secret of `source` opens.
    ///
    /// # Errors
    /// [`ObjectsError::NotEncrypted`], and those of the store and of the secret.
    pub fn list(
        &self,
        source: Option<&KeySource>,
    ) -> Result<(Vec<Slot>, Option<usize>), ObjectsError> {
        let (ring, _) = self.load()?;
        let opened = match source {
            Some(source) => ring.unlock(&source.read()?).map(|(_, at)| at),
            None => None,
        };
        Ok((ring.0, opened))
    }

    /// Adds a slot for the secret of `new`. Returns its id.
    ///
    /// # Errors
    /// [`ObjectsError::WrongKey`] if `source` opens nothing; and those of the store.
    pub fn add(
        &self,
        source: Option<&KeySource>,
        new: &KeySource,
        name: &str,
    ) -> Result<String, ObjectsError> {
        let secret = new.read()?;
        self.change(source, |ring, key, _| {
            let slot = Slot::new(key, &secret, name, clock::now())?;
            let id = slot.id().to_owned();
            ring.0.push(slot);
            Ok(id)
        })
    }

    /// Replaces the slot of the secret of `source` by one for that of `new`. Returns its id.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn exchange(
        &self,
        source: Option<&KeySource>,
        new: &KeySource,
    ) -> Result<String, ObjectsError> {
        let secret = new.read()?;
        self.change(source, |ring, key, own| {
            let slot = Slot::new(key, &secret, ring.0[own].name(), clock::now())?;
            let id = slot.id().to_owned();
            ring.0[own] = slot;
            Ok(id)
        })
    }

    /// Removes the slot `id`.
    ///
    /// # Errors
    /// [`ObjectsError::NoSuchKey`], [`ObjectsError::LastKey`]; and as for [`add`](Self::add).
    pub fn remove(&self, source: Option<&KeySource>, id: &str) -> Result<(), ObjectsError> {
        let store = || self.store.name().to_owned();
        self.change(source, |ring, _, _| {
            let at = ring.0.iter().position(|slot| slot.id() == id);
            let at =
                at.ok_or_else(|| ObjectsError::NoSuchKey { store: store(), id: id.to_owned() })?;
            if ring.0.len() == 1 {
                return Err(ObjectsError::LastKey { store: store() });
            }
            ring.0.remove(at);
            Ok(())
        })
    }

    /// Changes the slots in one step. `change` gets them, the data key and the position of the slot
    /// that the secret of `source` opens; it is called again if somebody else was faster.
    fn change<T>(
        &self,
        source: Option<&KeySource>,
        change: impl Fn(&mut Ring, &DataKey, usize) -> Result<T, ObjectsError>,
    ) -> Result<T, ObjectsError> {
        let store = || self.store.name().to_owned();
        let source = source.ok_or_else(|| ObjectsError::NoKey { store: store() })?;
        let mut attempts = 0;
        loop {
            let (mut ring, found) = self.load()?;
            let (key, own) = ring.unlock(&source.read()?).ok_or_else(|| self.wrong(source))?;
            let result = change(&mut ring, &key, own)?;
            if ring.0.len() > ring::MOST_SLOTS {
                return Err(ObjectsError::TooManyKeys { store: store() });
            }
            attempts += 1;
            let content = ring.encode();
            match self.store.replace(NAME, content, &found.version, &found.content) {
                Ok(_) => return Ok(result),
                Err(error) if error.problem == Problem::Condition && attempts < MOST_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wrong(&self, source: &KeySource) -> ObjectsError {
        ObjectsError::WrongKey { store: self.store.name().to_owned(), name: source.name() }
    }

    fn load(&self) -> Result<(Ring, Versioned), ObjectsError> {
        self.find()?.ok_or_else(|| ObjectsError::NoKeys { store: self.store.name().to_owned() })
    }

    /// The slots, if something is encrypted there. Web servers may send a page for what they have
    /// not.
    fn find(&self) -> Result<Option<(Ring, Versioned)>, ObjectsError> {
        let get = || match self.store.get_versioned(NAME) {
            Ok(found) => Ok(Ring::is_one(&found.content).then_some(found)),
            Err(error) if error.problem == Problem::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        };
        understood(&*self.store, NAME, get, |found: &Option<Versioned>| {
            let Some(found) = found else { return Ok(None) };
            Ok(Some((Ring::decode(&found.content)?, found.clone())))
        })
    }

    /// The data key, by the secret of `source`. A process asks for a secret once.
    fn unlock(&self, ring: &Ring, source: &KeySource) -> Result<DataKey, ObjectsError> {
        static UNLOCKED: Mutex<Vec<(Ring, KeySource, DataKey)>> = Mutex::new(Vec::new());
        let is_known = |known: &&(Ring, KeySource, _)| known.0 == *ring && known.1 == *source;
        if let Some((.., key)) = UNLOCKED.lock().iter().find(is_known) {
            return Ok(key.clone());
        }
        let (key, _) = ring.unlock(&source.read()?).ok_or_else(|| self.wrong(source))?;
        UNLOCKED.lock().push((ring.clone(), source.clone(), key.clone()));
        Ok(key)
    }
}
