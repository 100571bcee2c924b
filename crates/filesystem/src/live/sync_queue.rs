//! The threads that wait for their changes to be durable, and the one that writes logs for all of
//! them.

use std::sync::{Arc, OnceLock};

use larder_locks::Held;
use larder_locks::rank::SYNC_TURN;
use parking_lot::{Condvar, Mutex};

use crate::changed::Changed;
use crate::item::id::InodeId;

/// The threads that wait for their changes to be durable.
#[derive(Default)]
pub(crate) struct Syncs {
    queue: Mutex<Queue>,
    /// A thread has written logs.
    written: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Requests that no thread has taken up.
    waiting: Vec<Arc<Request>>,
    /// A thread writes logs for the requests that waited before.
    is_writing: bool,
}

/// The turn of the thread that writes logs. Every request in it gets an answer, also while a panic
/// unwinds.
struct Turn<'s> {
    syncs: &'s Syncs,
    requests: Vec<Arc<Request>>,
}

pub(crate) struct Request {
    pub(crate) id: InodeId,
    pub(crate) is_directory: bool,
    pub(crate) outcome: OnceLock<Changed<()>>,
}

impl Syncs {
    /// Queues a request.
    pub(crate) fn push(&self, request: Arc<Request>) {
        self.queue.lock().waiting.push(request);
    }

    /// Waits until `request`, which was queued, is done, and returns its outcome. If its thread's
    /// turn comes to write logs for all that wait, `write` does it.
    pub(crate) fn wait(
        &self,
        request: &Request,
        write: impl Fn(&[Arc<Request>]) -> Changed<()>,
    ) -> Changed<()> {
        let _turn = Held::wait_for(SYNC_TURN);
        let mut queue = self.queue.lock();
        loop {
            if let Some(outcome) = request.outcome.get() {
                return outcome.clone();
            }
            if queue.is_writing {
                self.written.wait(&mut queue);
                continue;
            }
            queue.is_writing = true;
            let turn = Turn { syncs: self, requests: std::mem::take(&mut queue.waiting) };
            drop(queue);
            turn.answer(&write(&turn.requests));
            drop(turn);
            queue = self.queue.lock();
        }
    }
}

impl Turn<'_> {
    fn answer(&self, outcome: &Changed<()>) {
        for request in &self.requests {
            request.outcome.get_or_init(|| outcome.clone());
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // A request without an answer: this unwinds.
        self.answer(&Err(larder_transaction::Error::Panicked));
        self.syncs.queue.lock().is_writing = false;
        self.syncs.written.notify_all();
    }
}
