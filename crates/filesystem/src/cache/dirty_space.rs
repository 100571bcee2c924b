//! The memory for dirty data.
//!
//! # Invariants
//! - Data that is dirty or under writeback takes no more than a bound. A writer counts its data
//!   before it adds it. Only the rest of its first and last sectors, and the spare capacity of
//!   runs, are not counted.
//! - A writer that finds too little space writes back the data of all files, one thread at a time,
//!   until there is enough. It has not joined a transaction and holds no lock of a file meanwhile.
//! - Writeback needs none of this space.
//! - If there is still too little after that, because other threads took the space, the writer waits
//!   until what is taken has changed: until a thread has added its data, which can be written back
//!   then, or has written data back. All that takes space comes to one of these.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use larder_locks::RankedMutex;
use larder_locks::rank::DIRTY_TURN;
use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// The bound, and how much of it is taken.
pub(crate) struct DirtySpace {
    most_bytes: u64,
    taken_bytes: AtomicU64,
    /// Locked by the thread that writes back.
    turn: RankedMutex<(), DIRTY_TURN>,
    /// That thread waits, or is about to.
    is_waiting: AtomicBool,
    /// How often what is taken has changed while a thread waited.
    changes: Mutex<u64>,
    changed: Condvar,
}

/// Space for the data that a writer is about to add, until that data itself is counted.
#[must_use]
pub(crate) struct Entrance<'r> {
    space: &'r DirtySpace,
    bytes: u64,
}

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        self.space.taken_bytes.fetch_sub(self.bytes, SeqCst);
        self.space.note_change();
    }
}

impl DirtySpace {
    pub(crate) fn new(most_bytes: u64) -> Self {
        let (taken_bytes, turn, is_waiting, changes, changed) = Default::default();
        Self { most_bytes, taken_bytes, turn, is_waiting, changes, changed }
    }

    /// The bound in bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Counts data that took `before` bytes and takes `now`.
    pub(crate) fn changed(&self, before: u64, now: u64) {
        if before != now {
            self.taken_bytes.fetch_add(now, SeqCst);
            self.taken_bytes.fetch_sub(before, SeqCst);
            self.note_change();
        }
    }

    /// Takes space for `bytes`. If there is too little, `write_back` frees some.
    pub(crate) fn enter(
        &self,
        bytes: u64,
        write_back: impl Fn() -> Result<()>,
    ) -> Result<Entrance<'_>> {
        // A write that is larger than the bound goes alone.
        let bytes = bytes.min(self.most_bytes);
        if let Some(entrance) = self.try_enter(bytes) {
            return Ok(entrance);
        }
        let _turn = self.turn.lock();
        let waiting = Waiting::new(self);
        loop {
            let seen = waiting.changes();
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            write_back()?;
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            waiting.for_change_since(seen);
        }
    }

    fn note_change(&self) {
        if self.is_waiting.load(SeqCst) {
            *self.changes.lock() += 1;
            self.changed.notify_all();
        }
    }

    fn try_enter(&self, bytes: u64) -> Option<Entrance<'_>> {
        // In one step: too much for a moment would make another thread wait for no change.
        let fits = |taken: u64| Some(taken + bytes).filter(|taken| *taken <= self.most_bytes);
        self.taken_bytes.fetch_update(SeqCst, SeqCst, fits).ok()?;
        Some(Entrance { space: self, bytes })
    }
}

/// The turn of the thread that waits. As long as this exists, changes are counted.
struct Waiting<'s>(&'s DirtySpace);

impl<'s> Waiting<'s> {
    fn new(space: &'s DirtySpace) -> Self {
        space.is_waiting.store(true, SeqCst);
        Self(space)
    }

    fn changes(&self) -> u64 {
        *self.0.changes.lock()
    }

    fn for_change_since(&self, seen: u64) {
        let has_none = |changes: &mut u64| *changes == seen;
        self.0.changed.wait_while(&mut self.0.changes.lock(), has_none);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

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
    fn a_writer_waits_for_another_one_and_not_for_time() {
        let space = DirtySpace::new(10);
        let count = AtomicU64::new(0);
        let write_back = || {
            count.fetch_add(1, SeqCst);
            Ok(())
        };
        let other = space.enter(10, write_back).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(space.enter(1, write_back).unwrap()));
            while count.load(SeqCst) == 0 {
                thread::yield_now();
            }
            for _ in 0..100 {
                // A thread that finds too little space changes nothing for others.
                assert!(space.try_enter(1).is_none());
                thread::yield_now();
            }
            drop(other);
            waiter.join().unwrap();
        });
        assert_eq!(count.load(SeqCst), 1, "it had nothing to write back");
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
