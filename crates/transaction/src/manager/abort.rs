//! Aborting a running transaction that cannot be committed.
//!
//! # Invariants
//! - The first reason is kept, with the time. Nothing is written after it, and the last commit
//!   stands.
//! - A panic that unwinds past a [`Handle`](super::Handle), an [`Exclusive`](super::Exclusive) or a
//!   commit is such a reason: it may leave a change half done in memory.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::SystemTime;

use super::durable::DurableState;
use crate::error::{Error, Result};

/// Why a file system was made read-only, and when.
#[derive(Clone, Debug)]
pub struct Aborted {
    /// The reason.
    pub reason: Arc<Error>,
    /// The time.
    pub since: SystemTime,
}

/// Whether the running transaction was aborted.
#[derive(Debug)]
pub(super) struct Abort {
    aborted: OnceLock<Aborted>,
    durable: Arc<DurableState>,
}

/// Aborts the running transaction if a panic unwinds past it.
#[derive(Debug)]
pub(super) struct AbortOnUnwind<'m>(pub(super) &'m Abort);

impl Abort {
    pub(super) fn new(durable: Arc<DurableState>) -> Self {
        Self { aborted: OnceLock::new(), durable }
    }

    /// Aborts the running transaction, unless that was done before.
    pub(super) fn abort(&self, reason: Error) {
        // An error that only tells of an earlier one is no reason.
        if matches!(reason, Error::Aborted(_)) {
            return;
        }
        let aborted = Aborted { reason: Arc::new(reason), since: SystemTime::now() };
        if self.aborted.set(aborted.clone()).is_ok() {
            tracing::error!(
                "the file system is read-only from now on: {}; the last commit, generation {}, \
                 is whole, and what was not synced after it is lost",
                aborted.reason,
                self.durable.generation(),
            );
        }
    }

    /// When and why the transaction was aborted, if it was.
    pub(super) fn get(&self) -> Option<&Aborted> {
        self.aborted.get()
    }

    /// # Errors
    /// [`Error::Aborted`] if the transaction was aborted.
    pub(super) fn check_alive(&self) -> Result<()> {
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
