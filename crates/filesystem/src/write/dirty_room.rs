//! Room for data that is not written back.
//!
//! # Invariants
//! - What is dirty or being written back takes no more than there is room for. What a writer is about to add is counted
//!   before it is there; only what shares a sector with it, and what a run keeps to grow, comes on top.
//! - Who finds no room writes back what all files have, one thread at a time, until there is some. It is inside
//!   no transaction and holds no lock of a file meanwhile.
//! - Writing back needs none of this room.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Result;

/// Who found no room although all was written back, because others took it, lets them go on.
const PAUSE: Duration = Duration::from_millis(1);

/// How much there is, and how much of it is taken.
pub(super) struct DirtyRoom {
    most_bytes: u64,
    taken_bytes: AtomicU64,
    /// Held by the one who makes room.
    turn: Mutex<()>,
}

/// Room for what a writer is about to add, until that is counted itself.
#[must_use]
pub(super) struct Entrance<'r> {
    room: &'r DirtyRoom,
    bytes: u64,
}

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        self.room.taken_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

impl DirtyRoom {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, taken_bytes: AtomicU64::new(0), turn: Mutex::default() }
    }

    /// All that there is, in bytes.
    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// What took `before` bytes takes `now`.
    pub(super) fn changed(&self, before: u64, now: u64) {
        self.taken_bytes.fetch_add(now, Relaxed);
        self.taken_bytes.fetch_sub(before, Relaxed);
    }

    /// Takes room for `bytes`, which `make_room` makes where there is none.
    pub(super) fn enter(
        &self,
        bytes: u64,
        make_room: impl Fn() -> Result<()>,
    ) -> Result<Entrance<'_>> {
        // What is larger than all goes alone.
        let bytes = bytes.min(self.most_bytes);
        loop {
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            let _turn = self.turn.lock();
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            make_room()?;
            if let Some(entrance) = self.try_enter(bytes) {
                return Ok(entrance);
            }
            thread::sleep(PAUSE);
        }
    }

    fn try_enter(&self, bytes: u64) -> Option<Entrance<'_>> {
        let taken = self.taken_bytes.fetch_add(bytes, Relaxed) + bytes;
        let entrance = Entrance { room: self, bytes };
        (taken <= self.most_bytes).then_some(entrance)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::error::Error;

    #[test]
    fn nobody_takes_more_than_there_is() {
        const MOST: u64 = 100;
        let room = DirtyRoom::new(MOST);
        let dirty = AtomicU64::new(0);
        let write_back = || {
            let written = dirty.swap(0, SeqCst);
            room.changed(written, 0);
            Ok(())
        };
        thread::scope(|scope| {
            for len in [1, 7, 30, 60, 100] {
                let (room, dirty, write_back) = (&room, &dirty, &write_back);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let entrance = room.enter(len, write_back).unwrap();
                        assert!(dirty.load(SeqCst) + len <= MOST);
                        room.changed(0, len);
                        dirty.fetch_add(len, SeqCst);
                        drop(entrance);
                    }
                });
            }
        });
        write_back().unwrap();
        assert_eq!(room.taken_bytes.load(SeqCst), 0);
    }

    #[test]
    fn who_cannot_make_room_is_told_why() {
        let room = DirtyRoom::new(10);
        room.changed(0, 10);
        assert!(room.enter(1, || Err(Error::NotFound)).is_err());
        room.changed(10, 0);
        assert!(room.enter(1000, || Err(Error::NotFound)).is_ok(), "it is more than there ever is");
    }
}
