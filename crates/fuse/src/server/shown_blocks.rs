//! What the kernel was told of the space that a file takes, while programs write to it.
//!
//! The kernel caches `st_blocks` and counts nothing itself: what it writes back does not change what
//! it shows. So the server makes it ask again when the data is on its way.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What the kernel may show of the space of one file that is not true any more.
#[derive(Debug, Default)]
pub(super) struct ShownBlocks {
    /// One block, for data that may come.
    is_one: AtomicBool,
    /// The space before the kernel wrote back from its cache.
    is_before_writeback: AtomicBool,
}

impl ShownBlocks {
    /// The kernel is told of one block that the file does not have.
    pub(super) fn show_one(&self) {
        self.is_one.store(true, Relaxed);
    }

    /// The kernel wrote data back, for which it was not told a number.
    pub(super) fn note_writeback(&self) {
        self.is_before_writeback.store(true, Relaxed);
    }

    /// The kernel will ask again when the file is closed. So it does with a cache for writes.
    pub(super) fn are_asked_for_at_close(&self) {
        self.is_one.store(false, Relaxed);
    }

    /// Whether the kernel has to be told that all has changed. Until the next change it need not be
    /// told again.
    pub(super) fn are_stale(&self) -> bool {
        let is_one = self.is_one.swap(false, Relaxed);
        self.is_before_writeback.swap(false, Relaxed) || is_one
    }
}
