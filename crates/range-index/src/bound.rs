//! The bound of a link: the largest hole that the space it skips can have. `holes.rs` says which
//! thread raises and lowers it, and in which order.

use crate::sync::{AtomicU64, Ordering};

/// An upper bound of a length. The lowest bit says that a thread is about to lower the bound, and
/// counts as set in the bound itself.
pub(crate) struct Bound(AtomicU64);

const MARK: u64 = 1;

impl Bound {
    pub(crate) fn unknown() -> Self {
        Bound(AtomicU64::new(!MARK))
    }

    /// The bound, which may be one more than the length it was raised to.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst) | MARK
    }

    /// Whether the bound is larger than it need be for a hole of `len`.
    pub(crate) fn exceeds(&self, len: u64) -> bool {
        self.get() > len | MARK
    }

    pub(crate) fn set_unknown(&self) {
        self.0.store(!MARK, Ordering::SeqCst);
    }

    /// Makes the bound at least `len`, and foils a lowering that is under way.
    pub(crate) fn raise(&self, len: u64) {
        let mut old = self.0.load(Ordering::SeqCst);
        while old & MARK != 0 || old | MARK < len {
            let new = old.max(len) & !MARK;
            match self.0.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Makes the bound the result of `measure`, unless it is raised meanwhile. One caller at a
    /// time.
    pub(crate) fn lower(&self, measure: impl FnOnce() -> u64) {
        let marked = self.0.fetch_or(MARK, Ordering::SeqCst) | MARK;
        let new = measure().min(marked) & !MARK;
        let _ = self.0.compare_exchange(marked, new, Ordering::SeqCst, Ordering::SeqCst);
    }
}
