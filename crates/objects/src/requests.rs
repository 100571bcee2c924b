//! Numbers of requests, which users of a store pay for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Reads.
    pub gets: u64,
    /// Bytes that reads returned.
    pub got_bytes: u64,
    /// New objects.
    pub creates: u64,
    /// Bytes of new objects.
    pub created_bytes: u64,
    /// Replacements of the manifest.
    pub replaces: u64,
    /// Bytes of those.
    pub replaced_bytes: u64,
    /// Deletions.
    pub deletes: u64,
    /// Listings.
    pub lists: u64,
}

impl Requests {
    /// These and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            gets: self.gets + other.gets,
            got_bytes: self.got_bytes + other.got_bytes,
            creates: self.creates + other.creates,
            created_bytes: self.created_bytes + other.created_bytes,
            replaces: self.replaces + other.replaces,
            replaced_bytes: self.replaced_bytes + other.replaced_bytes,
            deletes: self.deletes + other.deletes,
            lists: self.lists + other.lists,
        }
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} get of {} bytes, {} put of {} bytes, {} replace of {} bytes, {} delete, {} list",
            self.gets,
            self.got_bytes,
            self.creates,
            self.created_bytes,
            self.replaces,
            self.replaced_bytes,
            self.deletes,
            self.lists
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; 8]);

pub(crate) const GETS: usize = 0;
pub(crate) const CREATES: usize = 2;
pub(crate) const REPLACES: usize = 4;
pub(crate) const DELETES: usize = 6;
pub(crate) const LISTS: usize = 7;

impl Counts {
    pub(crate) fn read(&self) -> Requests {
        let count = |at: usize| self.0[at].load(Ordering::Relaxed);
        Requests {
            gets: count(GETS),
            got_bytes: count(GETS + 1),
            creates: count(CREATES),
            created_bytes: count(CREATES + 1),
            replaces: count(REPLACES),
            replaced_bytes: count(REPLACES + 1),
            deletes: count(DELETES),
            lists: count(LISTS),
        }
    }

    pub(crate) fn add(&self, at: usize) {
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_with_bytes(&self, at: usize, bytes: usize) {
        self.add(at);
        self.0[at + 1].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
