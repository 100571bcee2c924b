//! Delayed references: changes of extents that are not in the extent tree yet.
//!
//! # Invariants
//! - The references of an extent are those of its item in the extent tree plus those of its head.
//! - A thread that decides by the reference count of a tree block *locks its ref head* from before
//!   it counts until it has queued the consequences. A thread locks a head before it runs it, so
//!   that no thread counts while the head is neither here nor in the extent tree.
//! - A new tree block whose references cancel out leaves no trace here.
//!
//! The only locks here that threads wait for are those of ref heads. A thread that runs heads locks
//! each only while it edits the extent, checksum, free space and block group trees. Blocks of these
//! are never shared, so no thread locks their heads.

mod head;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder_format::Logical;
use parking_lot::{Condvar, Mutex};

use crate::extent::Referrer;

pub use head::{ExtentKind, Head};

/// After so many changes a thread lets others have a turn.
const MOST_AT_ONCE: usize = 64;

/// The delayed references of the running transaction.
#[derive(Debug, Default)]
pub struct DelayedRefs {
    queue: Mutex<Queue>,
    released: Condvar,
    /// The number of heads in the queue, readable without the lock.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    heads: BTreeMap<Logical, Head>,
    locked: HashSet<Logical>,
    /// Where the next batch begins, so that no head waits for ever.
    next: Logical,
}

/// An extent as its references name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRef {
    /// Its address.
    pub logical: Logical,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its content.
    pub kind: ExtentKind,
}

/// The outcome of a change of references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Queued {
    /// It will be run.
    Pending,
    /// The extent was a new tree block and has no references any more. It never was in the extent
    /// tree, and nothing is queued.
    Dissolved,
}

impl DelayedRefs {
    /// Queues the first references to an extent that was just allocated.
    pub fn add_new(&self, extent: ExtentRef, referrer: Referrer, count: u32) {
        self.edit(|queue| {
            let head = queue.head(extent);
            head.is_new = true;
            head.change(referrer, i64::from(count));
        });
    }

    /// Queues `count` more references, or fewer if it is negative.
    pub fn change(&self, extent: ExtentRef, referrer: Referrer, count: i64) -> Queued {
        self.edit(|queue| queue.change(extent, referrer, count))
    }

    /// Like [`change`](Self::change), for each of many extents. Returns those that dissolved.
    pub fn change_all(&self, extents: &[(ExtentRef, Referrer)], count: i64) -> Vec<ExtentRef> {
        let mut dissolved = Vec::new();
        for some in extents.chunks(MOST_AT_ONCE) {
            self.edit(|queue| {
                for (extent, referrer) in some {
                    if queue.change(*extent, *referrer, count) == Queued::Dissolved {
                        dissolved.push(*extent);
                    }
                }
            });
        }
        dissolved
    }

    /// Queues that references to children of this tree block are by its address from now on, not by
    /// its owner.
    pub fn set_full_backref(&self, extent: ExtentRef) {
        self.edit(|queue| queue.head(extent).sets_full_backref = true);
    }

    /// How many extents have changes. Exact while no other thread queues or runs any.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether nothing is queued. Heads that a runner has taken do not count.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until no other thread has locked the ref head at `logical`, and locks it.
    pub fn lock_head(&self, logical: Logical) -> HeadLock<'_> {
        let mut queue = self.queue.lock();
        while !queue.locked.insert(logical) {
            self.released.wait(&mut queue);
        }
        HeadLock { refs: self, logical }
    }

    /// Takes the heads of up to `limit` extents that no thread has locked, and locks them.
    pub fn take(&self, limit: usize) -> Batch<'_> {
        Batch { refs: self, heads: self.edit(|queue| queue.take(limit)) }
    }

    /// Drops everything. Only after the transaction was aborted.
    pub fn clear(&self) {
        self.edit(|queue| queue.heads.clear());
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = self.queue.lock();
        let result = edit(&mut queue);
        self.len.store(queue.heads.len(), Relaxed);
        result
    }

    fn release(&self, logicals: impl Iterator<Item = Logical>) {
        let mut queue = self.queue.lock();
        logicals.for_each(|logical| {
            assert!(queue.locked.remove(&logical), "a ref head is unlocked once");
        });
        self.released.notify_all();
    }
}

impl Queue {
    fn head(&mut self, extent: ExtentRef) -> &mut Head {
        let new = || Head::new(extent.len_bytes, extent.kind);
        let head = self.heads.entry(extent.logical).or_insert_with(new);
        head.compare(extent.len_bytes, extent.kind);
        head
    }

    fn change(&mut self, extent: ExtentRef, referrer: Referrer, count: i64) -> Queued {
        let head = self.head(extent);
        head.change(referrer, count);
        if !head.touches_nothing() {
            return Queued::Pending;
        }
        let is_new = head.is_new;
        if is_new && extent.kind == ExtentKind::Data {
            // Its checksums are to be removed, which the runner does.
            return Queued::Pending;
        }
        self.heads.remove(&extent.logical);
        if is_new { Queued::Dissolved } else { Queued::Pending }
    }

    fn take(&mut self, limit: usize) -> Vec<(Logical, Head)> {
        let Self { heads, locked, next } = self;
        let from_next = heads.range(*next..).chain(heads.range(..*next));
        let free =
            from_next.map(|(logical, _)| *logical).filter(|logical| !locked.contains(logical));
        let mut chosen: Vec<Logical> = free.take(limit).collect();
        if let Some(last) = chosen.last() {
            *next = Logical(last.0.saturating_add(1));
        }
        // For those after the end, which begin again.
        chosen.sort_unstable();
        let take = |logical| {
            locked.insert(logical);
            (logical, heads.remove(&logical).expect("it was just there"))
        };
        chosen.into_iter().map(take).collect()
    }
}

/// The right to decide by the number of references of one block.
#[derive(Debug)]
pub struct HeadLock<'a> {
    refs: &'a DelayedRefs,
    logical: Logical,
}

impl HeadLock<'_> {
    /// The changes that are queued.
    pub fn pending(&self) -> Option<Head> {
        self.refs.queue.lock().heads.get(&self.logical).cloned()
    }
}

impl Drop for HeadLock<'_> {
    fn drop(&mut self) {
        self.refs.release([self.logical].into_iter());
    }
}

/// Heads to be run, held until the batch is dropped.
#[derive(Debug)]
pub struct Batch<'a> {
    refs: &'a DelayedRefs,
    heads: Vec<(Logical, Head)>,
}

impl Batch<'_> {
    /// The heads in order of their addresses.
    pub fn heads(&self) -> &[(Logical, Head)] {
        &self.heads
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.refs.release(self.heads.iter().map(|(logical, _)| *logical));
    }
}

#[cfg(test)]
mod tests {
    use larder_format::Key;

    use super::*;

    const TREE_5: Referrer = Referrer::Tree { root: 5 };
    const TREE_257: Referrer = Referrer::Tree { root: 257 };

    fn block(logical: u64) -> ExtentRef {
        let kind = ExtentKind::TreeBlock { level: 0, first_key: Key::MIN };
        ExtentRef { logical: Logical(logical), len_bytes: 16384, kind }
    }

    #[test]
    fn opposite_changes_cancel_out() {
        let refs = DelayedRefs::default();
        assert_eq!(refs.change(block(0), TREE_5, -1), Queued::Pending);
        assert_eq!(refs.change(block(0), TREE_257, 1), Queued::Pending);
        assert_eq!(refs.len(), 1);
        assert_eq!(refs.change(block(0), TREE_5, 1), Queued::Pending);
        assert_eq!(refs.change(block(0), TREE_257, -1), Queued::Pending);
        assert!(refs.is_empty());
    }

    #[test]
    fn a_new_block_that_goes_again_is_free_at_once() {
        let refs = DelayedRefs::default();
        refs.add_new(block(0), TREE_5, 1);
        assert_eq!(refs.change(block(0), TREE_5, -1), Queued::Dissolved);
        assert!(refs.is_empty());
    }

    #[test]
    fn new_data_that_goes_again_is_left_to_the_runner() {
        let refs = DelayedRefs::default();
        let extent = ExtentRef { logical: Logical(0), len_bytes: 4096, kind: ExtentKind::Data };
        let file = Referrer::File { root: 5, inode: 257, offset: 0 };
        refs.add_new(extent, file, 1);
        assert_eq!(refs.change(extent, file, -1), Queued::Pending);
        let batch = refs.take(8);
        assert!(batch.heads()[0].1.is_new && batch.heads()[0].1.touches_nothing());
    }

    #[test]
    fn additions_and_drops_are_told_apart() {
        let refs = DelayedRefs::default();
        let _ = refs.change(block(0), TREE_5, -1);
        let _ = refs.change(block(0), TREE_257, 1);
        let batch = refs.take(1);
        let head = &batch.heads()[0].1;
        assert_eq!(head.additions().collect::<Vec<_>>(), [(TREE_257, 1)]);
        assert_eq!(head.drops().collect::<Vec<_>>(), [(TREE_5, 1)]);
        assert_eq!(head.net(), 0);
    }

    #[test]
    fn a_held_block_is_not_taken_and_batches_go_round() {
        let refs = DelayedRefs::default();
        for at in 0..4 {
            refs.add_new(block(at << 14), TREE_5, 1);
        }
        let hold = refs.lock_head(Logical(0));
        assert!(hold.pending().is_some_and(|head| head.is_new && head.net() == 1));
        let taken = |limit| refs.take(limit).heads().iter().map(|(at, _)| at.0 >> 14).collect();
        assert_eq!(taken(2), [1, 2]);
        refs.add_new(block(1 << 14), TREE_5, 1);
        assert_eq!(taken(1), [3]);
        refs.add_new(block(3 << 14), TREE_5, 1);
        assert_eq!(taken(8), [1, 3]);
        drop(hold);
        let taken: Vec<u64> = taken(8);
        assert_eq!(taken, [0]);
    }

    #[test]
    fn a_hold_waits_for_the_runner() {
        let refs = DelayedRefs::default();
        refs.add_new(block(0), TREE_5, 1);
        let batch = refs.take(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| refs.lock_head(Logical(0)).pending());
            assert!(!waiter.is_finished());
            drop(batch);
            assert_eq!(waiter.join().expect("it does not panic"), None);
        });
    }
}
