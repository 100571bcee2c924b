//! Tickets: callers that find no space are served one after the other.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::space::{Priority, SpaceKind};

/// The callers that wait for space, by kind and priority.
#[derive(Debug, Default)]
pub(super) struct TicketQueues {
    queues: [[TicketQueue; Priority::ALL.len()]; SpaceKind::ALL.len()],
}

#[derive(Debug, Default)]
pub(super) struct TicketQueue {
    waiting: AtomicUsize,
    first: Mutex<()>,
}

/// The ticket of the first in a queue.
pub(super) struct Ticket<'q> {
    queue: &'q TicketQueue,
    _first: MutexGuard<'q, ()>,
}

impl TicketQueues {
    pub(super) fn of(&self, kind: SpaceKind, priority: Priority) -> &TicketQueue {
        &self.queues[kind as usize][priority as usize]
    }
}

impl TicketQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Relaxed) == 0
    }

    /// Waits until the caller is the first.
    pub(super) fn wait(&self) -> Ticket<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Ticket { queue: self, _first: self.first.lock() }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.queue.waiting.fetch_sub(1, Relaxed);
    }
}
