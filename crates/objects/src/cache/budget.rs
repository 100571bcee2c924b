//! How much content may be on its way at once.

use parking_lot::{Condvar, Mutex};

/// Bytes that callers take and return. A caller that asks for more than there is waits.
#[derive(Debug)]
pub(super) struct Budget {
    all: u64,
    left: Mutex<u64>,
    returned: Condvar,
}

/// Bytes that a caller has. They return when this is dropped.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(all: u64) -> Self {
        Self { all, left: Mutex::new(all), returned: Condvar::new() }
    }

    /// Takes `bytes`, or all if that is less.
    pub(super) fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.all);
        let mut left = self.left.lock();
        while *left < bytes {
            self.returned.wait(&mut left);
        }
        *left -= bytes;
        Taken { budget: self, bytes }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.budget.left.lock() += self.bytes;
        // Those that wait ask for different amounts.
        self.budget.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let (budget, taken) = (Budget::new(10), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (budget, taken) = (&budget, &taken);
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = (thread + round) % 15;
                        let room = budget.take(bytes);
                        let bytes = bytes.min(10);
                        assert!(taken.fetch_add(bytes, Ordering::Relaxed) + bytes <= 10);
                        thread::yield_now();
                        taken.fetch_sub(bytes, Ordering::Relaxed);
                        drop(room);
                    }
                });
            }
        });
        assert_eq!(*budget.left.lock(), 10);
    }
}
