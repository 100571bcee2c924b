//! A reader-writer lock for models: every acquisition is a point where shuttle may switch threads.

use parking_lot::lock_api::{GuardNoSend, RawRwLock};
use shuttle::sync::{Condvar, Mutex};

/// Readers, or `WRITER`.
type State = Mutex<usize>;

const WRITER: usize = usize::MAX;

/// The raw lock. Shuttle's primitives cannot be made in constants, hence the `OnceLock`.
pub(crate) struct RawLock {
    state: std::sync::OnceLock<(State, Condvar)>,
}

impl RawLock {
    fn parts(&self) -> &(State, Condvar) {
        self.state.get_or_init(|| (Mutex::new(0), Condvar::new()))
    }

    fn acquire(&self, wanted: impl Fn(usize) -> Option<usize>) {
        let (state, released) = self.parts();
        let mut state = state.lock().expect("never poisoned");
        loop {
            if let Some(next) = wanted(*state) {
                *state = next;
                return;
            }
            state = released.wait(state).expect("never poisoned");
        }
    }

    fn try_acquire(&self, wanted: impl Fn(usize) -> Option<usize>) -> bool {
        let mut state = self.parts().0.lock().expect("never poisoned");
        let next = wanted(*state);
        *state = next.unwrap_or(*state);
        next.is_some()
    }

    fn release(&self, change: impl Fn(usize) -> usize) {
        let (state, released) = self.parts();
        let mut state = state.lock().expect("never poisoned");
        *state = change(*state);
        drop(state);
        released.notify_all();
    }
}

fn one_more_reader(state: usize) -> Option<usize> {
    (state != WRITER).then(|| state + 1)
}

fn the_writer(state: usize) -> Option<usize> {
    (state == 0).then_some(WRITER)
}

// SAFETY: `state` changes under a mutex from 0 to `WRITER` for the one exclusive holder, and counts
// shared holders otherwise, so that an exclusive lock never coexists with any other.
unsafe impl RawRwLock for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api asks for it")]
    const INIT: Self = Self { state: std::sync::OnceLock::new() };

    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        self.acquire(one_more_reader);
    }

    fn try_lock_shared(&self) -> bool {
        self.try_acquire(one_more_reader)
    }

    unsafe fn unlock_shared(&self) {
        self.release(|readers| readers - 1);
    }

    fn lock_exclusive(&self) {
        self.acquire(the_writer);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.try_acquire(the_writer)
    }

    unsafe fn unlock_exclusive(&self) {
        self.release(|_| 0);
    }

    fn is_locked(&self) -> bool {
        *self.parts().0.lock().expect("never poisoned") != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        *self.parts().0.lock().expect("never poisoned") == WRITER
    }
}
