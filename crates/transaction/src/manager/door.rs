//! The door: who may change trees now.
//!
//! # Invariants
//! - While the door is closed nobody is inside but the one who closed it.
//! - A thread is inside once at most: it would wait for itself when the door closes in between.

use std::cell::Cell;
use std::marker::PhantomData;

use parking_lot::{Condvar, Mutex};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Default)]
pub(super) struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    inside: usize,
    /// Somebody went in since that was last forgotten.
    was_entered: bool,
}

impl Door {
    /// Waits until the door is open, and goes in.
    ///
    /// # Panics
    /// When this thread is inside already.
    pub(super) fn enter(&self) -> Inside<'_> {
        mark_inside();
        let mut state = self.state.lock();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.inside += 1;
        let is_first = !std::mem::replace(&mut state.was_entered, true);
        Inside { door: self, is_first, thread: PhantomData }
    }

    /// Closes the door and waits until everybody has left. It opens when the result is dropped.
    ///
    /// # Panics
    /// When this thread is inside.
    pub(super) fn close(&self) -> Closed<'_> {
        mark_inside();
        let mut state = self.state.lock();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.is_closed = true;
        while state.inside > 0 {
            self.changed.wait(&mut state);
        }
        Closed { door: self, thread: PhantomData }
    }
}

fn mark_inside() {
    IS_INSIDE.with(|inside| {
        assert!(!inside.replace(true), "a thread joins a transaction once at a time");
    });
}

/// A stay inside, of the thread that entered.
#[derive(Debug)]
pub(super) struct Inside<'d> {
    door: &'d Door,
    /// Nobody went in since that was last forgotten.
    pub(super) is_first: bool,
    thread: PhantomData<*const ()>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        IS_INSIDE.with(|inside| inside.set(false));
        self.door.state.lock().inside -= 1;
        self.door.changed.notify_all();
    }
}

/// The closed door, of the thread that closed it.
#[derive(Debug)]
pub(super) struct Closed<'d> {
    door: &'d Door,
    thread: PhantomData<*const ()>,
}

impl Closed<'_> {
    /// Has the next who goes in be the first.
    pub(super) fn forget_entries(&self) {
        self.door.state.lock().was_entered = false;
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        IS_INSIDE.with(|inside| inside.set(false));
        self.door.state.lock().is_closed = false;
        self.door.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let (door, inside) = (Door::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let stay = door.enter();
                        inside.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        drop(stay);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let closed = door.close();
                        assert_eq!(inside.load(SeqCst), 0);
                        drop(closed);
                    }
                });
            }
        });
    }

    #[test]
    #[should_panic(expected = "joins a transaction once")]
    fn a_thread_that_enters_twice_is_told() {
        let door = Door::default();
        let _stay = door.enter();
        let _again = door.enter();
    }
}
