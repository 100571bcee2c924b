//! Free space in which nothing is allocated, so that no caller is promised any of it.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::RwLock;

/// A part of the space of an account.
pub(super) trait Part: Debug + Send + Sync {
    /// Bytes of it that are free.
    fn free_bytes(&self) -> u64;
}

/// The parts of an account in which nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(RwLock<Vec<Arc<dyn Part>>>);

impl Withdrawn {
    /// Bytes of them that are free.
    pub(super) fn free_bytes(&self) -> u64 {
        self.0.read().iter().map(|part| part.free_bytes()).sum()
    }

    pub(super) fn add(&self, part: Arc<dyn Part>) {
        self.0.write().push(part);
    }

    pub(super) fn remove(&self, part: &Arc<dyn Part>) {
        self.0.write().retain(|other| !Arc::ptr_eq(other, part));
    }
}
