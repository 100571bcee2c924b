//! The memory for dirty data.
//!
//! # Invariants
//! - Data that is dirty or under writeback takes no more than a bound. A writer counts its data
//!   before it adds it. Only the rest of its first and last sectors, and the spare capacity of
//!   runs, are not counted.
//! - A writer that finds too little space writes back the data of all files, one thread at a time,
//!   until there is enough. It has not joined a transaction and holds no lock of a file meanwhile.
//! - Writeback needs none of this space.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Result;

/// If there is too little space after everything was written back, because other threads took it, a
/// writer waits for them.
const PAUSE: Duration = Duration::from_millis(1);

/// The bound, and how much of it is taken.
pub(crate) struct DirtySpace {
    most_bytes: u64,
    taken_bytes: AtomicU64,
    /// Locked by the thread that writes back.
    turn: Mutex<()>,
}

/// Space for the data that a writer is about to add, until that data itself is counted.
#[must_use]
pub(crate) struct Entrance<'r> {
    space: &'r DirtySpace,
    bytes: u64,
}

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        self.space.taken_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

impl DirtySpace {
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, taken_bytes: AtomicU64::new(0), turn: Mutex::default() }
    }

    /// The bound in bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Counts data that took `before` bytes and takes `now`.
    pub(crate) fn changed(&self, before: u64, now: u64) {
        self.taken_bytes.fetch_add(now, Relaxed);
        self.taken_bytes.fetch_sub(before, Relaxed);
    }

    /// Takes space for `bytes`. If there is too little, `write_back` frees some.
    pub(crate) fn enter(
        &self,
        bytes: u64,
        write_back: impl Fn() -> Result<()>,
    ) -> Result<Entrance<'_>> {
        // A write that is larger than the bound goes alone.
        let bytes = bytes.min(self.most_bytes);
        loop {
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            let _turn = self.turn.lock();
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            write_back()?;
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            thread::sleep(PAUSE);
        }
    }

    fn try_enter(&self, bytes: u64) -> Option<Entrance<'_>> {
        let taken = self.taken_bytes.fetch_add(bytes, Relaxed) + bytes;
        let entrance = Entrance { space: self, bytes };
        (taken <= self.most_bytes).then_some(entrance)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::error::Error;

    #[test]
    fn writers_never_take_more_than_the_bound() {
        const MOST: u64 = 100;
        let space = DirtySpace::new(MOST);
        let dirty = AtomicU64::new(0);
        let write_back = || {
            let written = dirty.swap(0, SeqCst);
            space.changed(written, 0);
            Ok(())
        };
        thread::scope(|scope| {
            for len in [1, 7, 30, 60, 100] {
                let (space, dirty, write_back) = (&space, &dirty, &write_back);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let entrance = space.enter(len, write_back).unwrap();
                        assert!(dirty.load(SeqCst) + len <= MOST);
                        space.changed(0, len);
                        dirty.fetch_add(len, SeqCst);
                        drop(entrance);
                    }
                });
            }
        });
        write_back().unwrap();
        assert_eq!(space.taken_bytes.load(SeqCst), 0);
    }

    #[test]
    fn a_writer_gets_the_error_of_writing_back() {
        let space = DirtySpace::new(10);
        space.changed(0, 10);
        assert!(space.enter(1, || Err(Error::NotFound)).is_err());
        space.changed(10, 0);
        assert!(
            space.enter(1000, || Err(Error::NotFound)).is_ok(),
            "it is more than there ever is"
        );
    }
}
