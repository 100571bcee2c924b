//! The callers that find no space: each waits for its ticket, and the first for deletions.
//!
//! # Invariants
//! - Callers that ask for one kind with one priority are served in order.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder_locks::rank::TICKETS;
use larder_locks::{RankedMutex, RankedMutexGuard};

use super::cleaning::Cleanings;
use crate::space::{Priority, SpaceKind};

/// The callers that wait for space, by kind and priority, and the deletions that they wait for.
#[derive(Debug, Default)]
pub(super) struct SpaceWaiters {
    pub(super) cleanings: Cleanings,
    queues: [[TicketQueue; Priority::ALL.len()]; SpaceKind::ALL.len()],
}

#[derive(Debug, Default)]
pub(super) struct TicketQueue {
    waiting: AtomicUsize,
    first: RankedMutex<(), TICKETS>,
}

/// The ticket of the first in a queue.
pub(super) struct Ticket<'q> {
    queue: &'q TicketQueue,
    _first: RankedMutexGuard<'q, (), TICKETS>,
}

impl SpaceWaiters {
    pub(super) fn queue(&self, kind: SpaceKind, priority: Priority) -> &TicketQueue {
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
