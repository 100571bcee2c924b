//! Requests whose caller got a signal.
//!
//! The kernel itself ends what nobody has begun to serve, and the waiting for locks, which it keeps. A request that
//! is being served is waited for: most take no longer than a device does, and are completed. Those that may take
//! long watch for interruption and stop at a place where all is sound. That a request of which nothing
//! is known is interrupted means nothing: it was served, or does not take long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

/// The requests that watch, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    watched: Mutex<HashMap<u64, Arc<AtomicBool>>>,
}

/// A request that watches as long as this lives.
#[derive(Debug)]
pub(super) struct Watch<'i> {
    interrupts: &'i Interrupts,
    unique: u64,
    interrupted: Arc<AtomicBool>,
}

impl Interrupts {
    /// Has the request `unique` watch.
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
    /// Whether to stop.
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
    fn only_who_is_meant_stops() {
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
