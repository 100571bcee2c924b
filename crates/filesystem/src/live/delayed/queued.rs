//! The queued items of one inode.

use larder_format::item::InodeItem;
use larder_locks::rank::DELAYED;
use larder_locks::{RankedMutex, RankedMutexGuard};

use crate::live::delayed::queue::IndexQueue;
use crate::live::delayed::reservation::ReservedItems;

/// The queued items of one inode; there is at least one.
pub(crate) struct Queued {
    pub(crate) item: Option<InodeItem>,
    pub(crate) index: IndexQueue,
    pub(crate) reserved: ReservedItems,
}

impl Queued {
    pub(crate) fn is_empty(&self) -> bool {
        self.item.is_none() && self.index.is_empty()
    }

    pub(crate) fn len(&self) -> u64 {
        self.index.len() as u64 + u64::from(self.item.is_some())
    }

    pub(crate) fn reservations(&self) -> u64 {
        self.index.reservations() + u64::from(self.item.is_some())
    }
}

/// The queued items of an inode, if there are any.
#[derive(Default)]
pub(crate) struct DelayedItems {
    queued: RankedMutex<Option<Box<Queued>>, DELAYED>,
}

impl DelayedItems {
    pub(crate) fn lock(&self) -> RankedMutexGuard<'_, Option<Box<Queued>>, DELAYED> {
        self.queued.lock()
    }

    pub(crate) fn clear(&self) {
        *self.lock() = None;
    }
}
