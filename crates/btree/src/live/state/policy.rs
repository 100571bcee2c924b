//! How descents take their locks.

use crate::lock::LockContext;

/// How descents take their locks: always in the way that measured best. The feature `ablation` puts
/// a type of the same name in place of this one, whose fields a benchmark can set.
#[derive(Clone, Copy, Default)]
pub(crate) struct LockPolicy {}

#[expect(clippy::unused_self, reason = "the type that a benchmark sets has fields")]
impl LockPolicy {
    /// Whether an insert releases everything above the leaf before it searches the leaf.
    pub(crate) fn releases_early(self) -> bool {
        true
    }

    /// The highest level that an insert write-locks at first: 0 is the leaf alone. It begins again
    /// with more where it turns out to need more.
    pub(crate) fn first_write_level(self) -> u8 {
        0
    }

    /// Whether threads remember nodes above leaves, and pass by the blocks above those.
    pub(crate) fn uses_fingers(self) -> bool {
        true
    }

    /// What the locks of a forest share.
    pub(crate) fn lock_context(self) -> LockContext {
        LockContext::default()
    }
}
