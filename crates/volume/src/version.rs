//! The versions of a geometry that are in use.
//!
//! # Invariants
//! - Each geometry has a version of its own, and a later geometry a higher one. The version is in
//!   use from when the geometry is made until the last request drops the geometry.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The versions in use. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    in_use: BTreeSet<u64>,
    last: u64,
}

/// One version, in use until this is dropped. A clone is the next one.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    versions: Versions,
}

impl Versions {
    /// The next version.
    pub(crate) fn next(&self) -> Version {
        let mut state = self.0.state.lock();
        state.last += 1;
        let number = state.last;
        state.in_use.insert(number);
        Version { number, versions: self.clone() }
    }

    /// Waits until no version before this one is in use.
    pub(crate) fn wait_for_those_before(&self, number: u64) {
        let mut state = self.0.state.lock();
        while state.in_use.first().is_some_and(|first| *first < number) {
            self.0.ended.wait(&mut state);
        }
    }
}

impl Clone for Version {
    fn clone(&self) -> Self {
        self.versions.next()
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.versions.0.state.lock().in_use.remove(&self.number);
        self.versions.0.ended.notify_all();
    }
}
