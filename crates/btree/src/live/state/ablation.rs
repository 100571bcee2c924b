//! How descents take their locks, for benchmarks that measure what each part is worth.

use crate::lock::{LockContext, Waiting};

/// How descents take their locks. The default is what Larder does without the feature `ablation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockPolicy {
    /// Whether an insert releases everything above the leaf before it searches the leaf.
    pub early_release: bool,
    /// The highest level that an insert write-locks at first: 0 is the leaf alone. It begins again
    /// with more where it turns out to need more.
    pub first_write_level: u8,
    /// Whether threads remember nodes above leaves, and pass by the blocks above those.
    pub fingers: bool,
    /// How threads wait for locks.
    pub waiting: Waiting,
}

impl Default for LockPolicy {
    fn default() -> Self {
        Self {
            early_release: true,
            first_write_level: 0,
            fingers: true,
            waiting: Waiting::Adaptive,
        }
    }
}

impl LockPolicy {
    pub(crate) fn releases_early(self) -> bool {
        self.early_release
    }

    pub(crate) fn first_write_level(self) -> u8 {
        self.first_write_level
    }

    pub(crate) fn uses_fingers(self) -> bool {
        self.fingers
    }

    pub(crate) fn lock_context(self) -> LockContext {
        LockContext { waiting: self.waiting, ..LockContext::default() }
    }
}
