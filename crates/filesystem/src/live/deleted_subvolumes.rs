//! Deleted subvolumes whose trees are to be dropped.

use parking_lot::Mutex;

/// Deleted subvolumes of which nothing is open any more.
#[derive(Default)]
pub(crate) struct DeletedSubvolumes {
    unused: Mutex<Vec<u64>>,
}

impl DeletedSubvolumes {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.unused.lock().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<u64> {
        self.unused.lock().pop()
    }

    pub(crate) fn push(&self, id: u64) {
        self.unused.lock().push(id);
    }
}
