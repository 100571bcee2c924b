//! Handles of the library, each of one process.

use std::mem::forget;
use std::process;

use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::closed;

/// A handle, until it is closed.
///
/// A process that was forked from the one that opened it has a copy. It neither uses nor drops that:
/// the library's threads are not there, and both processes would change the image.
pub(crate) struct Owned<T> {
    /// What it is, for errors.
    what: &'static str,
    process: u32,
    handle: RwLock<Option<T>>,
}

impl<T: Clone> Owned<T> {
    pub(crate) fn new(what: &'static str, handle: T) -> Self {
        Self { what, process: process::id(), handle: RwLock::new(Some(handle)) }
    }

    pub(crate) fn get(&self) -> PyResult<T> {
        if self.is_forked() {
            return Err(PyValueError::new_err(format!(
                "the {} belongs to the process that this one was forked from; open it here",
                self.what
            )));
        }
        self.handle.read().clone().ok_or_else(|| closed(self.what))
    }

    /// Closes it here. Returns `None` if it is closed already, or another process's.
    pub(crate) fn take(&self) -> Option<T> {
        if self.is_forked() { None } else { self.handle.write().take() }
    }

    /// Whether there is nothing to close in this process.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_forked() || self.handle.read().is_none()
    }
}

impl<T> Owned<T> {
    /// Whether this process was forked from the one that opened it. No lock is asked: a thread of
    /// that process may have held it.
    pub(crate) fn is_forked(&self) -> bool {
        process::id() != self.process
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_forked() {
            forget(self.handle.get_mut().take());
        }
    }
}
