//! The progress of mkfs.

use std::fmt;
use std::sync::Arc;

/// Called from a thread of its own with the number of bytes written so far.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(u64) + Send + Sync>);

impl Progress {
    /// Calls `tell` after each write.
    pub fn new(tell: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, written_bytes: u64) {
        (self.0)(written_bytes);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
