//! Deletions in progress, for threads that wait for the space that they free.
//!
//! # Invariants
//! - A thread that deletes something in steps begins before other threads can see that it is gone,
//!   and before it removes it from a list of things to delete. So a thread that needs space finds
//!   it in the list, or here.
//! - A thread that deletes does not wait here.

use std::collections::BTreeMap;
use std::thread::ThreadId;

use parking_lot::{Condvar, Mutex};

/// The deletions in progress.
#[derive(Debug, Default)]
pub(super) struct Cleanings {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By the order in which they began.
    running: BTreeMap<u64, ThreadId>,
    begun: u64,
    /// Steps of all deletions so far.
    steps: u64,
}

/// A deletion in progress, until this is dropped.
#[derive(Debug)]
pub struct Cleaning<'m> {
    cleanings: &'m Cleanings,
    number: u64,
}

impl Cleaning<'_> {
    /// Notes one step: some blocks or data were dropped.
    pub fn stepped(&self) {
        self.cleanings.state.lock().steps += 1;
        self.cleanings.changed.notify_all();
    }
}

impl Drop for Cleaning<'_> {
    fn drop(&mut self) {
        self.cleanings.state.lock().running.remove(&self.number);
        self.cleanings.changed.notify_all();
    }
}

impl Cleanings {
    pub(super) fn begin(&self) -> Cleaning<'_> {
        let mut state = self.state.lock();
        let number = state.begun;
        state.begun += 1;
        state.running.insert(number, std::thread::current().id());
        Cleaning { cleanings: self, number }
    }

    /// The number of deletions that have begun so far.
    pub(super) fn now(&self) -> u64 {
        self.state.lock().begun
    }

    /// Waits until the first `end` deletions have ended, or until deletions have made `steps` more
    /// steps. Returns whether there was any to wait for.
    pub(super) fn wait(&self, end: u64, steps: u64) -> bool {
        let mut state = self.state.lock();
        let is_running = |state: &State| state.running.range(..end).next().is_some();
        let was_running = is_running(&state);
        let me = std::thread::current().id();
        debug_assert!(!state.running.values().any(|thread| *thread == me), "it waits for itself");
        let enough = state.steps + steps;
        while is_running(&state) && state.steps < enough {
            self.changed.wait(&mut state);
        }
        was_running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_does_not_wait_for_deletions_that_began_later() {
        let cleanings = Cleanings::default();
        let asked = cleanings.now();
        std::thread::scope(|scope| {
            let (begun, wait_for_begun) = std::sync::mpsc::channel();
            let (end, wait_for_end) = std::sync::mpsc::channel::<()>();
            scope.spawn({
                let cleanings = &cleanings;
                move || {
                    let _cleaning = cleanings.begin();
                    begun.send(()).unwrap();
                    wait_for_end.recv().unwrap();
                }
            });
            wait_for_begun.recv().unwrap();
            assert!(!cleanings.wait(asked, 1));
            end.send(()).unwrap();
        });
    }

    #[test]
    fn a_thread_waits_for_steps_and_then_for_the_end() {
        let cleanings = Cleanings::default();
        std::thread::scope(|scope| {
            let (begun, wait_for_begun) = std::sync::mpsc::channel();
            let (go_on, wait_to_go_on) = std::sync::mpsc::channel::<()>();
            scope.spawn({
                let cleanings = &cleanings;
                move || {
                    let cleaning = cleanings.begin();
                    begun.send(()).unwrap();
                    cleaning.stepped();
                    wait_to_go_on.recv().unwrap();
                }
            });
            wait_for_begun.recv().unwrap();
            let asked = cleanings.now();
            scope.spawn(move || {
                // Late enough that another thread should be seen to wait, and harmless if it is
                // not.
                std::thread::sleep(std::time::Duration::from_millis(20));
                go_on.send(()).unwrap();
            });
            assert!(cleanings.wait(asked, 100), "there was one");
            assert!(cleanings.state.lock().running.is_empty(), "it has ended");
            assert!(!cleanings.wait(asked, 100), "there is none");
        });
    }
}
