//! Space for queued items.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_transaction::space::{Priority, Reservation, Space, SpaceKind};

/// Where space is reserved, and how much.
pub(crate) struct ItemReservations {
    space: Arc<Space>,
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl ItemReservations {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self { space, bytes: AtomicU64::new(0), peak_bytes: AtomicU64::new(0) }
    }

    /// Space for inserting one item at worst, if there is any without waiting.
    pub(crate) fn reservation(&self, priority: Priority) -> Option<Reservation> {
        let len_bytes = self.space.insertion_bytes(1);
        let reservation = self.space.try_reserve(SpaceKind::Metadata, len_bytes, priority).ok()?;
        let bytes = self.bytes.fetch_add(len_bytes, Relaxed) + len_bytes;
        self.peak_bytes.fetch_max(bytes, Relaxed);
        Some(reservation)
    }

    /// Bytes that are reserved now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The most so far.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }
}

/// The units that one inode has reserved. They may differ in size, if a tree has grown in between.
#[derive(Debug, Default)]
pub(crate) struct ReservedItems {
    held: Option<Reservation>,
    count: u64,
}

impl ReservedItems {
    pub(crate) fn add(&mut self, reservation: Reservation) {
        match &mut self.held {
            Some(held) => held.absorb(reservation),
            None => self.held = Some(reservation),
        }
        self.count += 1;
    }

    /// Gives all except `units` back.
    pub(crate) fn shrink_to(&mut self, count: u64, reservations: &ItemReservations) {
        let Some(held) = self.held.as_mut().filter(|_| count < self.count) else {
            debug_assert_eq!(count, self.count);
            return;
        };
        let before_bytes = held.len_bytes();
        let left_bytes = before_bytes / self.count * count;
        held.shrink_to(left_bytes);
        reservations.bytes.fetch_sub(before_bytes - left_bytes, Relaxed);
        self.count = count;
        if count == 0 {
            self.held = None;
        }
    }
}
