//! Completing block groups that have fewer copies than others of their kind: those that were made
//! while devices were missing, by the kernel too.

use larder_volume::Chunk;

use super::{DeviceProgress, DeviceWork, Tell};
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::manager::{ResyncProgress, TransactionManager};

impl TransactionManager {
    /// Brings devices up to date that missed commits, and gives each block group that has fewer
    /// copies than the safest of its kind the profile of these, each with a commit. Calls `tell` in
    /// this thread with the progress.
    ///
    /// # Errors
    /// [`Error::NoPlace`] if the devices have no room for a block group. Those that were completed
    /// before stay so.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn complete_redundancy(&self, tell: &Tell<'_>) -> Result<Moved> {
        let mut work = DeviceWork::begin(self, tell)?;
        self.renew_devices(&|progress| {
            let ResyncProgress { done_bytes, total_bytes } = progress;
            // It is short, and what is half done would have to begin again.
            let _ = tell(DeviceProgress { done_bytes, total_bytes });
        })?;
        work.complete()?;
        Ok(work.moved)
    }
}

impl DeviceWork<'_> {
    fn complete(&mut self) -> Result<()> {
        // What is empty goes by itself.
        self.manager.commit()?;
        let space = self.manager.space();
        let wanted = |chunk: &Chunk| {
            let group = space.group_at(chunk.logical());
            group.and_then(|group| space.complete_profile(&group))
        };
        self.move_chunks(
            |chunk| wanted(chunk).is_some(),
            |chunk| wanted(chunk).unwrap_or(chunk.profile()),
            |_, _| false,
        )
    }

    /// Completes what was written while devices were missing, if none is any more. What it cannot
    /// complete stays, and is told.
    pub(super) fn complete_after_loss(&mut self) -> Result<()> {
        if self.manager.space().is_degraded() {
            return Ok(());
        }
        match self.complete() {
            Err(error @ (Error::NoPlace { .. } | Error::Unreadable { .. })) => {
                tracing::warn!(
                    "not all block groups have as many copies as they should: {error}; \
                     'larder filesystem redundancy' shows and completes them"
                );
                Ok(())
            }
            ended => ended,
        }
    }
}
