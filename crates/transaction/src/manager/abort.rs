//! The end of a running transaction that cannot be committed.
//!
//! # Invariants
//! - The first reason is kept, with the time; nothing is written after it, and the last commit
//!   stands.
//! - A panic that unwinds past a [`Handle`](super::Handle), the closed door or a commit is such a
//!   reason: what it interrupted may be half done in memory.

use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use super::TransactionManager;
use crate::error::{Error, Result};

/// Why a file system was made read-only, and when.
#[derive(Clone, Debug)]
pub struct Aborted {
    /// Why.
    pub reason: Arc<Error>,
    /// Since when.
    pub since: SystemTime,
}

/// Gives the running transaction up if a panic unwinds past it.
#[derive(Debug)]
pub(super) struct AbortOnUnwind<'m>(pub(super) &'m TransactionManager);

impl TransactionManager {
    /// Gives the running transaction up: the file system is read-only from now on, and the last
    /// durable state is what is on the devices. The first reason is kept.
    pub fn abort(&self, reason: Error) {
        // An error that only says that there was an earlier one is no reason.
        if matches!(reason, Error::Aborted(_)) {
            return;
        }
        let aborted = Aborted { reason: Arc::new(reason), since: SystemTime::now() };
        if self.aborted.set(aborted.clone()).is_ok() {
            tracing::error!(
                "the file system is read-only from now on: {}; the last commit, generation {}, \
                 is whole, and what was not synced after it is lost",
                aborted.reason,
                self.durable_generation(),
            );
        }
    }

    /// Why the file system was made read-only, if it was.
    pub fn abort_reason(&self) -> Option<&Error> {
        self.aborted.get().map(|aborted| &*aborted.reason)
    }

    /// Why and since when the file system is read-only, if it was made so.
    pub fn aborted(&self) -> Option<&Aborted> {
        self.aborted.get()
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        let aborted = |aborted: &Aborted| Err(Error::Aborted(aborted.reason.clone()));
        self.aborted.get().map_or(Ok(()), aborted)
    }
}

impl Drop for AbortOnUnwind<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort(Error::Panicked);
        }
    }
}
