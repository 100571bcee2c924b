//! Inserting queued items into the trees: before and in commits, under memory pressure, and when
//! space is short.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use larder_transaction::Exclusive;

use crate::changed::{Changed, apply};
use crate::core::writer::Writer;
use crate::live::delayed::table::DelayedInodes;

/// Inserts the items that are queued now into the trees, in the running transaction, with several
/// threads if there are many.
pub(crate) fn flush_delayed(writer: &Writer) -> Changed<()> {
    larder_parallel::in_stretches(&writer.delayed.all(), |live| {
        let handle = writer.manager.join()?;
        apply(&handle, || live.flush_delayed())?;
        handle.end()
    })
}

/// Inserts all queued items into the trees. No thread can queue more meanwhile.
pub(crate) fn flush_delayed_in(writer: &Writer, _exclusive: &Exclusive<'_>) -> Changed<()> {
    for live in writer.delayed.all() {
        live.flush_delayed()?;
    }
    debug_assert!(writer.delayed.inodes.lock().is_empty());
    Ok(())
}

/// Empties the queues if they are full and no other thread does so.
pub(crate) fn relieve(writer: &Writer) -> Changed<()> {
    match writer.delayed.begin_flushing() {
        Some(_flushing) => flush_delayed(writer),
        None => Ok(()),
    }
}

impl DelayedInodes {
    fn begin_flushing(&self) -> Option<Flushing<'_>> {
        let is_mine =
            self.items.load(Relaxed) >= self.most_items && !self.is_flushing.swap(true, Acquire);
        is_mine.then_some(Flushing { delayed: self })
    }
}

/// The turn of the thread that empties the queues.
struct Flushing<'d> {
    delayed: &'d DelayedInodes,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.delayed.is_flushing.store(false, Release);
    }
}
