//! Putting what is queued into the trees: before and in commits, under pressure, for want of space.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use larder_transaction::Exclusive;

use crate::core::writer::{Changed, Writer, apply};
use crate::error::Result;
use crate::filesystem::handle::Filesystem;
use crate::inode::delayed::{DelayedInodes, MOST_ITEMS};
use crate::parallel;

impl Filesystem {
    /// Puts what is queued now into the trees, for who reads them past the inodes. Nothing happens in a
    /// file system that is open for reading.
    pub(crate) fn flush_delayed(&self) -> Result<()> {
        Ok(self.try_writer().map_or(Ok(()), Writer::flush_delayed)?)
    }
}

impl Writer {
    /// Puts what is queued now into the trees, in the running transaction, with several threads if it is much.
    pub(crate) fn flush_delayed(&self) -> Changed<()> {
        parallel::in_stretches(&self.delayed.all(), |live| {
            let handle = self.manager.join()?;
            apply(&handle, || live.flush_delayed())?;
            handle.end()
        })
    }

    /// Puts all that is queued into the trees: nobody can queue more meanwhile.
    pub(crate) fn flush_delayed_in(&self, _exclusive: &Exclusive<'_>) -> Changed<()> {
        for live in self.delayed.all() {
            live.flush_delayed()?;
        }
        debug_assert!(self.delayed.inodes.lock().is_empty());
        Ok(())
    }

    /// Empties the queues if they are full and nobody else is at it.
    pub(crate) fn relieve(&self) -> Changed<()> {
        match self.delayed.begin_flushing() {
            Some(_flushing) => self.flush_delayed(),
            None => Ok(()),
        }
    }
}

impl DelayedInodes {
    fn begin_flushing(&self) -> Option<Flushing<'_>> {
        let is_mine =
            self.items.load(Relaxed) >= MOST_ITEMS && !self.is_flushing.swap(true, Acquire);
        is_mine.then_some(Flushing { delayed: self })
    }
}

/// The turn of the one who empties the queues.
struct Flushing<'d> {
    delayed: &'d DelayedInodes,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.delayed.is_flushing.store(false, Release);
    }
}
