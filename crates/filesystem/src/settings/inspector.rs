//! A look at every n-th commit, for tests.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_device::KeptState;

/// Looks at every n-th commit that callers ask for.
pub(crate) struct Inspector {
    every: NonZeroU64,
    commits: AtomicU64,
    inspect: Box<dyn Fn(&KeptState) + Send + Sync>,
}

impl Inspector {
    pub(crate) fn new(
        every: NonZeroU64,
        inspect: impl Fn(&KeptState) + Send + Sync + 'static,
    ) -> Self {
        Self { every, commits: AtomicU64::new(0), inspect: Box::new(inspect) }
    }

    /// Counts a commit. Returns whether it is to be looked at.
    pub(crate) fn is_due(&self) -> bool {
        (self.commits.fetch_add(1, Relaxed) + 1) % self.every == 0
    }

    pub(crate) fn inspect(&self, state: &KeptState) {
        (self.inspect)(state);
    }
}
