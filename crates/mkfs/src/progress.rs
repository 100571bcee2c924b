//! The progress of mkfs, and its end before time.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::MkfsError;

/// Called from any thread with the number of bytes written so far. Its answer is whether mkfs goes
/// on.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(u64) -> ControlFlow<()> + Send + Sync>);

impl Progress {
    /// Calls `tell` for each directory of the source, and after each write.
    pub fn new(tell: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Fails if mkfs does not go on.
    pub(crate) fn tell(&self, written_bytes: u64) -> Result<(), MkfsError> {
        match (self.0)(written_bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MkfsError::Interrupted),
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
