//! The progress of the work, and its end before time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::RescueError;

/// The progress of reading devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
}

/// Counts the progress and tells it.
pub(crate) struct Tracker<'a> {
    tell: &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync),
    now: Mutex<Progress>,
    is_stopped: AtomicBool,
}

impl<'a> Tracker<'a> {
    pub(crate) fn new(tell: &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync)) -> Self {
        Self { tell, now: Mutex::default(), is_stopped: AtomicBool::new(false) }
    }

    pub(crate) fn expect(&self, total_bytes: u64) {
        self.now.lock().total_bytes = total_bytes;
    }

    /// Adds `bytes`. Tells under the lock, so that what is told only grows.
    pub(crate) fn advance(&self, bytes: u64) -> Result<(), RescueError> {
        let mut now = self.now.lock();
        now.done_bytes += bytes;
        if (self.tell)(*now).is_break() {
            self.is_stopped.store(true, Relaxed);
        }
        if self.is_stopped.load(Relaxed) { Err(RescueError::Stopped) } else { Ok(()) }
    }
}
