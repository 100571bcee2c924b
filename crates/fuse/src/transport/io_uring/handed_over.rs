//! Requests of a ring that another thread serves, so that the thread of the entry can answer in its
//! place if the caller is killed.
//!
//! # Invariants
//! - Only the thread of an entry can answer: a ring has one user. A thread that waits for a device
//!   cannot, so requests that wait for whole commits are handed over.
//! - The other thread has a copy of the request: once the entry is answered, the kernel puts another
//!   request there.
//! - A request is answered once: with its result, or early with `EINTR`. The loser tells the
//!   [handler](super::super::serving::Handler::unheard).
//! - So many threads serve what is handed over as a queue may have entries. Further requests are
//!   served in place.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::super::away::{FromSlot, Slot};
use super::super::in_progress::{Early, Place};
use super::super::serving::{Served, Serving, serve};
use super::seasoned::Seasoned;
use crate::protocol::abi::{InHeader, opcode};
use crate::protocol::{Reply, Request};

/// Whether requests of a kind may wait for whole commits, or for as long as they copy.
pub(super) fn may_take_long(code: u32) -> bool {
    matches!(code, opcode::IOCTL | opcode::SYNCFS | opcode::COPY_FILE_RANGE)
}

/// A copy of a request.
pub(super) struct Copied {
    pub(super) header: InHeader,
    pub(super) op_in: [u8; 128],
    pub(super) payload: Vec<u8>,
    /// The most bytes of a reply.
    pub(super) room_bytes: usize,
}

/// An answer: how the request was served, and the body.
pub(super) type Answered = (Served, Vec<u8>);

/// Counts the threads that serve what a queue has handed over.
#[derive(Debug)]
pub(super) struct Helpers {
    most: usize,
    count: AtomicUsize,
}

/// The answer to one request, once there is one.
#[derive(Default)]
pub(super) struct Awaited {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Waits,
    Answered(Answered),
    /// The caller is killed, or got the answer.
    Ended,
}

impl Helpers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, count: AtomicUsize::new(0) }
    }

    /// Serves `request` in another thread, and returns its answer, or an early one. `None` if there
    /// is no thread for it.
    pub(super) fn serve<'s>(
        &'s self,
        request: Copied,
        seasoned: &'s Seasoned,
        serving: Serving<'s, '_>,
    ) -> Option<Answered> {
        let count_up = |count| (count < self.most).then_some(count + 1);
        self.count.fetch_update(SeqCst, SeqCst, count_up).ok()?;
        let awaited = Arc::new(Awaited::default());
        let InHeader { unique, pid, .. } = request.header;
        let entered = serving.in_progress.enter(awaited.clone());
        entered.place.begins(unique, pid);
        let (place, answer) = (entered.place.clone(), awaited.clone());
        let help = move || {
            request.serve(&place, &answer, seasoned, serving);
            self.count.fetch_sub(1, SeqCst);
        };
        let started =
            thread::Builder::new().name("larder-long".into()).spawn_scoped(serving.scope, help);
        if started.is_err() {
            self.count.fetch_sub(1, SeqCst);
            return None;
        }
        Some(awaited.wait())
    }
}

impl Copied {
    /// Serves the request, and leaves the answer to the waiting thread.
    fn serve(
        self,
        place: &Place,
        awaited: &Awaited,
        seasoned: &Seasoned,
        Serving { handler, kernel, soon, .. }: Serving<'_, '_>,
    ) {
        let kernel = FromSlot { kernel, soon, slot: &Helping { seasoned, place } };
        let request = Request::of_parts(self.header, &self.op_in, &self.payload);
        let mut room = vec![0; self.room_bytes];
        let served = serve(request, &mut Reply::new(&mut room), handler, &kernel);
        let Served { error, body_len } = served.unwrap_or(Served { error: 0, body_len: 0 });
        room.truncate(body_len);
        if let Err((_, body)) = awaited.answer((Served { error, body_len }, room))
            && let Ok(request) = request
        {
            handler.unheard(&request, &body, &kernel);
        }
    }
}

impl Awaited {
    /// Waits for the answer, or for the end of the caller.
    fn wait(&self) -> Answered {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| matches!(state, State::Waits));
        match mem::replace(&mut *state, State::Ended) {
            State::Answered(answered) => answered,
            State::Waits | State::Ended => {
                (Served { error: -Errno::INTR.raw_os_error(), body_len: 0 }, Vec::new())
            }
        }
    }

    /// Gives the answer. Returns it if the caller is killed.
    fn answer(&self, answered: Answered) -> Result<(), Answered> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Waits) {
            return Err(answered);
        }
        *state = State::Answered(answered);
        self.changed.notify_all();
        Ok(())
    }
}

impl Early for Awaited {
    fn end(&self, _unique: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if matches!(*state, State::Waits) {
            *state = State::Ended;
            self.changed.notify_all();
        }
        Ok(())
    }
}

/// The slot of the entry whose request is handed over.
struct Helping<'h> {
    seasoned: &'h Seasoned,
    place: &'h Place,
}

impl Slot for Helping<'_> {
    fn leave(&self) -> bool {
        self.seasoned.leave()
    }

    fn come_back(&self) {
        self.seasoned.come_back();
    }

    fn caller_waits(&self) -> bool {
        self.place.caller_waits()
    }
}
