//! Notes which locks a thread takes and when, for benchmarks that work out what more processors
//! would do with it.

use std::cell::RefCell;
use std::time::Instant;

/// What the holder of a lock may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// It reads, and other threads may read, too.
    Read,
    /// It changes what no other thread sees.
    Write,
}

/// What a thread did with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// It got the lock.
    Take(Right),
    /// It gave the lock back.
    Release,
}

/// A thread took or released a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockEvent {
    /// When it had done so.
    pub at: Instant,
    /// Another number than those of all other locks that exist at this time.
    pub lock: usize,
    /// What it did.
    pub action: LockAction,
}

thread_local! {
    static EVENTS: RefCell<Option<Vec<LockEvent>>> = const { RefCell::new(None) };
}

/// Does `work`, and returns what this thread did with locks of tree blocks meanwhile.
pub fn record_locks<R>(work: impl FnOnce() -> R) -> (R, Vec<LockEvent>) {
    EVENTS.set(Some(Vec::with_capacity(64)));
    let result = work();
    (result, EVENTS.take().unwrap_or_default())
}

pub(super) fn taken(lock: usize, right: Right) {
    note(lock, LockAction::Take(right));
}

pub(super) fn released(lock: usize) {
    note(lock, LockAction::Release);
}

fn note(lock: usize, action: LockAction) {
    EVENTS.with_borrow_mut(|events| {
        if let Some(events) = events {
            events.push(LockEvent { at: Instant::now(), lock, action });
        }
    });
}
