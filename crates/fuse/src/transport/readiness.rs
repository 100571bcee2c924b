//! When programs that use a mount are served.
//!
//! # Invariants
//! - A connection is ready once INIT is answered and, if both sides agreed on rings, the kernel has
//!   taken or refused all entries that the rings begin with. From then on no request waits for the
//!   server to begin.
//! - A thread that waits goes on when the connection ends before it is ready.

use parking_lot::{Condvar, Mutex};

/// Whether a connection is ready, and whether it will be.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    outcome: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Readiness {
    /// The connection is ready.
    pub(super) fn reached(&self) {
        self.decide(true);
    }

    /// The connection has ended. If it was not ready, it never will be.
    pub(super) fn ended(&self) {
        self.decide(false);
    }

    /// Waits until the connection is ready. Returns false if it ended before.
    pub(super) fn wait(&self) -> bool {
        let mut outcome = self.outcome.lock();
        self.changed.wait_while(&mut outcome, |outcome| outcome.is_none());
        *outcome == Some(true)
    }

    fn decide(&self, is_ready: bool) {
        self.outcome.lock().get_or_insert(is_ready);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Readiness;

    #[test]
    fn the_first_outcome_counts() {
        for is_ready in [true, false] {
            let readiness = Readiness::default();
            thread::scope(|scope| {
                let waits = scope.spawn(|| readiness.wait());
                if is_ready {
                    readiness.reached();
                }
                readiness.ended();
                assert_eq!(waits.join().unwrap(), is_ready);
            });
        }
    }
}
