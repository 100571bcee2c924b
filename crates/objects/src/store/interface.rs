//! What a store is.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::error::{Problem, StoreError};
use crate::timer::Timer;
use crate::watch::Watch;

/// Which content of an object a store gave or took: what a later replacement is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// A whole object, as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// What it holds.
    pub content: Bytes,
    /// Which content that is.
    pub version: Version,
    /// When it got this content, in seconds since 1970, by the clock of the store.
    pub modified: u64,
}

/// An object's name and length, as a store lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name below the store's prefix.
    pub name: String,
    /// The length in bytes.
    pub len_bytes: u64,
}

/// Objects with names, below one prefix of a bucket or in one directory. Names consist of parts,
/// which slashes separate. Those that begin with parts `..` lie beside the prefix.
///
/// # Invariants
/// - An object is there completely, or not at all.
/// - A call that succeeded is durable, and every later call sees what it did.
/// - A failed call may have done what it was asked for, or may do it later, unless the error says
///   that the condition did not hold.
pub trait Store: Send + Sync + fmt::Debug {
    /// The store's name in errors. It holds no credentials.
    fn name(&self) -> &str;

    /// The bytes of an object in `range`, which starts before the object's end. It may pass the end:
    /// then there are fewer bytes.
    ///
    /// # Errors
    /// [`Problem::NotFound`].
    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError>;

    /// A whole object.
    ///
    /// # Errors
    /// [`Problem::NotFound`].
    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError>;

    /// Asks for an object to be created. Callers use [`create`](Self::create).
    ///
    /// # Errors
    /// [`Problem::Condition`] if it exists, if the store says so without reason, or if an earlier
    /// attempt created it.
    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError>;

    /// Asks for an object to be replaced if its version is still `version`. Callers use
    /// [`replace`](Self::replace).
    ///
    /// # Errors
    /// [`Problem::Condition`] if its version is another, if the store says so without reason, or if
    /// an earlier attempt replaced it.
    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError>;

    /// Creates an object, unless it is there with this content.
    ///
    /// # Errors
    /// [`Problem::Condition`] if it is there with another content. [`Problem::Temporary`] if the
    /// store says that it is there, and it is not.
    fn create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        let refused = match self.try_create(name, content.clone()) {
            Err(error) if error.problem == Problem::Condition => error,
            result => return result,
        };
        match looked_at(self, name, |found| found.content == content) {
            Ok(found) if found.content == content => Ok(()),
            Ok(_) => Err(refused),
            Err(error) if error.problem == Problem::NotFound => Err(refused.into_passing()),
            Err(error) => Err(error),
        }
    }

    /// Replaces an object that still has the version `version` and the content `before`, unless it
    /// has the content `content` already. Returns its version.
    ///
    /// # Errors
    /// [`Problem::Condition`] if it has a third content. [`Problem::Temporary`] if the store says
    /// that it was replaced, and it was not.
    fn replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
        before: &[u8],
    ) -> Result<Version, StoreError> {
        let refused = match self.try_replace(name, content.clone(), version) {
            Err(error) if error.problem == Problem::Condition => error,
            result => return result,
        };
        let is_known = |found: &Versioned| found.content == content || found.content == before;
        let found = looked_at(self, name, is_known)?;
        if found.content == content {
            return Ok(found.version);
        }
        if found.content != before {
            return Err(refused);
        }
        if found.version == *version {
            return Err(refused.into_passing());
        }
        // The reply to an earlier request gave a wrong one.
        let again = self.try_replace(name, content, &found.version);
        again.map_err(|error| match error.problem {
            Problem::Condition => error.into_passing(),
            _ => error,
        })
    }

    /// Gives a damaged object its content.
    ///
    /// # Errors
    /// As for [`replace`](Self::replace); and [`Problem::NotFound`].
    fn mend(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        // A deletion before a new creation could arrive after it.
        let found = self.get_versioned(name)?;
        self.replace(name, content, &found.version, &found.content).map(drop)
    }

    /// Deletes an object, which may be gone already.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// The objects whose names begin with the parts of `prefix`, in any order.
    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError>;

    /// Why requests wait at this time, if any does.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Repeats each request for so long only, from now on.
    fn have_patience_for(&self, _time: Duration) {}

    /// How its users measure time and wait.
    fn timer(&self) -> Timer {
        Timer::default()
    }

    /// Where its users note what becomes of it, if anybody watches it.
    fn watch(&self) -> Option<Watch> {
        None
    }
}

/// So often at most somebody looks at an object that gives other content each time.
const MOST_LOOKS: u32 = 8;

/// An object, as two replies in a row show it, or as one does that `is_known` knows: a single reply
/// may be wrong.
fn looked_at<S: Store + ?Sized>(
    store: &S,
    name: &str,
    is_known: impl Fn(&Versioned) -> bool,
) -> Result<Versioned, StoreError> {
    let mut last: Option<Versioned> = None;
    for _ in 0..MOST_LOOKS {
        let found = store.get_versioned(name)?;
        if is_known(&found) || last.is_some_and(|last| last.content == found.content) {
            return Ok(found);
        }
        last = Some(found);
    }
    let why = "each reply gives other content";
    Err(StoreError::new(Problem::Temporary, store.name(), name, why))
}
