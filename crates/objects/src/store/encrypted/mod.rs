//! Encryption: what another store gets and lists is sealed, and needs the data key to be read.
//!
//! A repeated write of the same content is another object for the store below, so that this one
//! compares what is there with what a caller wrote, and not the store below.

mod content;
mod names;

use std::ops::Range;

use bytes::Bytes;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use self::content::Content;
use self::names::Names;
use super::{Listed, Problem, Store, StoreError, Version, Versioned};
use crate::codec::Malformed;
use crate::fetch::ATTEMPTS;
use crate::keys::DataKey;
use crate::manifest;
use crate::store::pass_on::pass_on;

/// A store that seals objects on their way to another one, and opens them on their way back. Each
/// is bound to its name.
#[derive(Debug)]
pub struct Encrypted<S> {
    store: S,
    content: Content,
    names: Names,
}

impl<S: Store> Encrypted<S> {
    /// The objects of `store`, which `key` opens.
    pub fn new(store: S, key: &DataKey) -> Self {
        let cipher = |purpose| XChaCha20Poly1305::new(&key.derived(purpose).into());
        let names = Names {
            cipher: cipher("larder objects names"),
            nonces: key.derived("larder objects nonces of names"),
        };
        Self { store, content: Content(cipher("larder objects content")), names }
    }

    /// Makes a request for an object. A reply that does not open may be wrong, and the object right:
    /// the request is made again.
    fn opened<R, T>(
        &self,
        name: &str,
        request: impl Fn(&str) -> Result<R, StoreError>,
        open: impl Fn(&R) -> Result<T, Malformed>,
    ) -> Result<T, StoreError> {
        let sealed = self.names.sealed(name);
        let mut attempts = 1;
        loop {
            let why = match open(&request(&sealed)?) {
                Ok(opened) => return Ok(opened),
                Err(why) => why,
            };
            let error = StoreError::new(Problem::Damaged, self.store.name(), &sealed, why);
            if attempts >= ATTEMPTS {
                return Err(error);
            }
            tracing::warn!("{error}; it is fetched again");
            attempts += 1;
        }
    }
}

/// The name that an object has at its own place, if `name` leads there from beside it: a clone has
/// the data key of its origin.
fn of_its_place(name: &str) -> &str {
    if !name.starts_with("../") {
        return name;
    }
    // An object without a folder is a manifest.
    let parts = if name.ends_with(manifest::NAME) { 1 } else { 2 };
    let start = name.rmatch_indices('/').nth(parts - 1).map_or(0, |(slash, _)| slash + 1);
    &name[start..]
}

impl<S: Store> Store for Encrypted<S> {
    pass_on!(store: name, trouble, have_patience_for, timer, watch);

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.opened(
            name,
            |sealed| self.store.get(sealed, content::range_of(&range)),
            |part| self.content.open_part(of_its_place(name), &range, part),
        )
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.opened(
            name,
            |sealed| self.store.get_versioned(sealed),
            |found| {
                let content = self.content.open(of_its_place(name), &found.content)?;
                let (version, modified) = (found.version.clone(), found.modified);
                Ok(Versioned { content, version, modified })
            },
        )
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.store.try_create(&self.names.sealed(name), self.content.seal(name, &content))
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        let sealed = self.content.seal(name, &content);
        self.store.try_replace(&self.names.sealed(name), sealed, version)
    }

    fn mend(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.store.mend(&self.names.sealed(name), self.content.seal(name, &content))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(&self.names.sealed(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let opened = |Listed { name, len_bytes }| Listed {
            name: self.names.opened(name),
            len_bytes: content::held_bytes(len_bytes),
        };
        Ok(self.store.list(prefix)?.into_iter().map(opened).collect())
    }
}
