//! The join gate keeps the threads that change trees apart from the one thread that needs them
//! unchanged.
//!
//! # Invariants
//! - While a thread has the gate quiesced, no other thread is joined.
//! - A thread joins a gate once at a time. A second join could wait for a quiescing thread that in
//!   turn waits for the first join to end.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_locks::Held;
use larder_locks::rank::GATE;
use parking_lot::{Condvar, Mutex};

thread_local! {
    /// The gates that this thread has joined or quiesced. One file system may lie in a file of
    /// another, so there may be several.
    static JOINED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub(super) struct JoinGate {
    /// Different from that of every other gate of the process.
    id: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_quiesced: bool,
    joined: usize,
    /// A thread joined since [`Quiesced::forget_joins`].
    had_join: bool,
}

impl JoinGate {
    /// Waits until the gate is not quiesced, and joins.
    ///
    /// # Panics
    /// If this thread has joined or quiesced the gate already.
    pub(super) fn join(&self) -> Joined<'_> {
        self.mark_thread();
        let held = Held::wait_for(GATE);
        let mut state = self.state.lock();
        while state.is_quiesced {
            self.changed.wait(&mut state);
        }
        state.joined += 1;
        let is_first = !std::mem::replace(&mut state.had_join, true);
        Joined { gate: self, is_first, thread: PhantomData, _held: held }
    }

    /// Keeps other threads from joining, and waits until all that have joined have left. Dropping
    /// the result lets them join again.
    ///
    /// # Panics
    /// If this thread has joined or quiesced the gate already.
    pub(super) fn quiesce(&self) -> Quiesced<'_> {
        self.mark_thread();
        let held = Held::wait_for(GATE);
        let mut state = self.state.lock();
        while state.is_quiesced {
            self.changed.wait(&mut state);
        }
        state.is_quiesced = true;
        while state.joined > 0 {
            self.changed.wait(&mut state);
        }
        Quiesced { gate: self, thread: PhantomData, _held: held }
    }

    fn mark_thread(&self) {
        JOINED.with_borrow_mut(|joined| {
            assert!(!joined.contains(&self.id), "a thread joins a transaction once at a time");
            joined.push(self.id);
        });
    }

    fn unmark_thread(&self) {
        JOINED.with_borrow_mut(|joined| joined.retain(|id| *id != self.id));
    }
}

impl Default for JoinGate {
    fn default() -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        Self { id, state: Mutex::default(), changed: Condvar::new() }
    }
}

/// The gate, joined by this thread.
#[derive(Debug)]
pub(super) struct Joined<'g> {
    gate: &'g JoinGate,
    /// No thread joined between the last [`Quiesced::forget_joins`] and this join.
    pub(super) is_first: bool,
    thread: PhantomData<*const ()>,
    _held: Held,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.gate.unmark_thread();
        self.gate.state.lock().joined -= 1;
        self.gate.changed.notify_all();
    }
}

/// The gate, quiesced by this thread.
#[derive(Debug)]
pub(super) struct Quiesced<'g> {
    gate: &'g JoinGate,
    thread: PhantomData<*const ()>,
    _held: Held,
}

impl Quiesced<'_> {
    /// Makes the next join the first.
    pub(super) fn forget_joins(&self) {
        self.gate.state.lock().had_join = false;
    }
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        self.gate.unmark_thread();
        self.gate.state.lock().is_quiesced = false;
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn no_other_thread_is_joined_while_one_has_quiesced() {
        let (gate, joined) = (JoinGate::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let join = gate.join();
                        joined.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        joined.fetch_sub(1, SeqCst);
                        drop(join);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let quiesced = gate.quiesce();
                        assert_eq!(joined.load(SeqCst), 0);
                        drop(quiesced);
                    }
                });
            }
        });
    }

    #[test]
    #[should_panic(expected = "joins a transaction once")]
    fn a_thread_that_joins_twice_panics() {
        let gate = JoinGate::default();
        let _first = gate.join();
        let _second = gate.join();
    }

    #[test]
    fn a_thread_may_join_one_gate_inside_another() {
        let (outer, inner) = (JoinGate::default(), JoinGate::default());
        let _outer = outer.join();
        drop(inner.quiesce());
        drop(inner.join());
        drop(inner.join());
    }
}
