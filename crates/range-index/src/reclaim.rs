//! Reclamation: replaced blocks and unlinked nodes are freed when no thread can see them any more.
//!
//! An epoch ends when every thread that looked at the index in it has looked away. A thread that
//! is preempted while it looks keeps all that the others retire meanwhile: with more threads than
//! processors, hundreds of megabytes in a moment. So a thread that has retired many blocks which
//! are not freed yet gives its processor away now and then: the thread that is held up lacks just
//! that.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_epoch::{self as epoch, Guard};

use crate::Value;
use crate::block::{self, BlockRef};
use crate::node::{self, NodeRef};
use crate::slabs::Slabs;
use crate::sync::thread;

/// Blocks of a batch: a thread retires so many before it looks how many of its batches are freed.
const BATCH: usize = 64;
/// How many of them may wait before it lets others run. Few: what waits for long has left the cache
/// by the time it is used again.
const MOST_WAITING: usize = 2;

/// The blocks that a thread has retired.
#[derive(Default)]
struct Account {
    in_batch: Cell<usize>,
    batches: Cell<usize>,
    /// Batches that were freed, by whomever.
    freed: Arc<AtomicUsize>,
}

thread_local! {
    static ACCOUNT: Account = Account::default();
}

/// Frees a block that was replaced, once no thread reads it any more.
pub(crate) fn retire_block<V: Value>(block: BlockRef<'_, V>, guard: &Guard) {
    let (raw, len) = (block.as_ptr(), block.len());
    // SAFETY: this thread, and no other, has replaced the block, so a thread that pins from now on
    // cannot find it. Any thread may drop its values, since they are `Send`.
    unsafe { guard.defer_unchecked(move || block::free(raw, len)) }
    let count = |account: &Account| account.count(guard);
    // A thread that is ending keeps no account.
    let _ = ACCOUNT.try_with(count);
}

/// Frees a node that was unlinked, once no thread can come across it any more.
pub(crate) fn retire_node<V: Value>(node: NodeRef<'_, V>, slabs: Arc<Slabs>, guard: &Guard) {
    let raw = node.as_ptr();
    // SAFETY: no link and no live back link leads to the node, so a thread that pins from now on
    // cannot find it; the rest as for blocks.
    unsafe { guard.defer_unchecked(move || node::free(&slabs, raw)) }
}

/// Moves the epoch on, and lets other threads run if one of them holds it back. Callers do this
/// after an edit, when they are not pinned any more.
pub(crate) fn relieve() {
    let asked = |ask: fn(&Account) -> bool| ACCOUNT.try_with(ask).unwrap_or(false);
    if asked(Account::has_new_batch) && asked(Account::is_overdue) {
        epoch::pin().flush();
        if asked(Account::is_overdue) {
            thread::yield_now();
        }
    }
}

impl Account {
    fn count(&self, guard: &Guard) {
        self.in_batch.set(self.in_batch.get() + 1);
        if self.in_batch.get() == BATCH {
            self.batches.set(self.batches.get() + 1);
            let freed = Arc::clone(&self.freed);
            guard.defer(move || freed.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Whether a batch was filled; true once for each.
    fn has_new_batch(&self) -> bool {
        let full = self.in_batch.get() >= BATCH;
        if full {
            self.in_batch.set(0);
        }
        full
    }

    /// Whether too many batches wait.
    fn is_overdue(&self) -> bool {
        self.waiting() > MOST_WAITING
    }

    /// Batches that are not freed yet.
    fn waiting(&self) -> usize {
        self.batches.get() - self.freed.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::RangeIndex;

    #[test]
    fn a_slow_reader_delays_reclamation_and_is_noticed() {
        let index = RangeIndex::<u64>::new();
        let edit = || {
            for _ in 0..(MOST_WAITING + 2) * BATCH {
                index.insert(0..1, 0).unwrap();
                index.remove(0).unwrap();
            }
        };
        let waiting = || ACCOUNT.with(Account::waiting);
        let looking = index.reader();
        edit();
        assert!(waiting() > MOST_WAITING);
        drop(looking);
        while waiting() > 0 {
            relieve();
            epoch::pin().flush();
        }
    }
}
