//! How descents take their locks.

use crate::lock::Waiting;

/// How descents take their locks: what the ablations switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockPolicy {
    /// Whether an insert releases everything above the leaf before it searches the leaf.
    pub early_release: bool,
    /// The highest level that an insert write-locks at first: 0 is the leaf alone. It begins again
    /// with more where it turns out to need more.
    pub first_write_level: u8,
    /// Whether threads remember nodes above leaves, and pass by what is above them.
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
