//! Room for what is queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_transaction::space::{Priority, Reservation, Space, SpaceKind};

/// Where room is promised, and how much of it is.
pub(crate) struct Promises {
    space: Arc<Space>,
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Promises {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self { space, bytes: AtomicU64::new(0), peak_bytes: AtomicU64::new(0) }
    }

    /// Room for inserting one item at worst, if there is any without making it.
    pub(crate) fn unit(&self, priority: Priority) -> Option<Reservation> {
        let len_bytes = self.space.insertion_bytes(1);
        let unit = self.space.try_reserve(SpaceKind::Metadata, len_bytes, priority).ok()?;
        let bytes = self.bytes.fetch_add(len_bytes, Relaxed) + len_bytes;
        self.peak_bytes.fetch_max(bytes, Relaxed);
        Some(unit)
    }

    /// Bytes that are promised now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The most that ever were.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }
}

/// The units that one node keeps. They may be of different sizes, where a tree has grown in between.
#[derive(Debug, Default)]
pub(crate) struct Room {
    promised: Option<Reservation>,
    units: u64,
}

impl Room {
    pub(crate) fn add(&mut self, unit: Reservation) {
        match &mut self.promised {
            Some(promised) => promised.absorb(unit),
            None => self.promised = Some(unit),
        }
        self.units += 1;
    }

    /// Gives all but `units` back.
    pub(crate) fn shrink_to(&mut self, units: u64, promises: &Promises) {
        let Some(promised) = self.promised.as_mut().filter(|_| units < self.units) else {
            debug_assert_eq!(units, self.units);
            return;
        };
        let before_bytes = promised.len_bytes();
        let left_bytes = before_bytes / self.units * units;
        promised.shrink_to(left_bytes);
        promises.bytes.fetch_sub(before_bytes - left_bytes, Relaxed);
        self.units = units;
        if units == 0 {
            self.promised = None;
        }
    }
}
