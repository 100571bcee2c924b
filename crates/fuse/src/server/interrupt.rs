//! Requests whose caller got a signal.
//!
//! The kernel itself ends requests that no thread has taken, and lock requests, which it serves. It
//! waits for a request that is being served: most take no longer than a device does, and are
//! completed. Requests that may take long watch for an interrupt, and stop where all is consistent.
//! An interrupt of an unknown request is ignored: it was served, or does not take long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

/// The requests that watch for interrupts, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    watched: Mutex<HashMap<u64, Arc<AtomicBool>>>,
}

/// A request watches as long as this lives.
#[derive(Debug)]
pub(super) struct Watch<'i> {
    interrupts: &'i Interrupts,
    unique: u64,
    interrupted: Arc<AtomicBool>,
}

impl Interrupts {
    /// Makes the request `unique` watch.
    pub(super) fn watch(&self, unique: u64) -> Watch<'_> {
        let interrupted = Arc::<AtomicBool>::default();
        self.watched.lock().insert(unique, interrupted.clone());
        Watch { interrupts: self, unique, interrupted }
    }

    /// The caller of the request `unique` got a signal.
    pub(super) fn interrupt(&self, unique: u64) {
        if let Some(interrupted) = self.watched.lock().get(&unique) {
            interrupted.store(true, Relaxed);
        }
    }
}

impl Watch<'_> {
    /// Whether the request should stop.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.interrupts.watched.lock().remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use super::Interrupts;

    #[test]
    fn only_the_interrupted_request_stops() {
        let interrupts = Interrupts::default();
        let (first, second) = (interrupts.watch(2), interrupts.watch(4));
        interrupts.interrupt(2);
        interrupts.interrupt(6);
        assert!(first.is_interrupted() && !second.is_interrupted());
        drop((first, second));
        assert!(interrupts.watched.lock().is_empty());
        assert!(!interrupts.watch(2).is_interrupted(), "numbers are given out again");
    }
}
