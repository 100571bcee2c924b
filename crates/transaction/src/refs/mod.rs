//! Delayed references: changes of extents that are not in the extent tree yet.
//!
//! # Invariants
//! - The references of an extent are those of its item in the extent tree plus those of its head.
//! - A thread that decides by the reference count of a tree block *locks its ref head* from before
//!   it counts until it has queued the consequences. A thread locks a head before it runs it, so
//!   that no thread counts while the head is neither here nor in the extent tree.
//! - A new tree block whose references cancel out leaves no trace here.
//! - Every change that is queued, and every one that a thread runs, is paid for: the queue changes
//!   only through `DelayedRefs::edit`, which tells the [`Payer`] the sum.
//!
//! The only locks here that threads wait for are those of ref heads. A thread that runs heads locks
//! each only while it edits the extent, checksum, free space and block group trees. Blocks of these
//! are never shared, so no thread locks their heads.

mod head;

use std::collections::HashSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use larder_format::Logical;
use larder_locks::rank::{HOLDS, REFS};
use larder_locks::{Held, RankedCondvar, RankedMutex};

use crate::extent::Referrer;

pub use head::{ExtentKind, Head};

/// After so many changes a thread lets others have a turn.
const MOST_AT_ONCE: usize = 64;

/// Keeps space for running delayed references.
pub trait Payer: Debug + Send + Sync {
    /// From now on keeps space for inserting this many items into the bookkeeping trees, in place of
    /// the number before. There may be too little: the sum is owed then, and no caller gets space
    /// before it is paid.
    fn owe(&self, insertions: u64);
}

/// The delayed references of the running transaction.
#[derive(Debug)]
pub struct DelayedRefs {
    queue: RankedMutex<Queue, REFS>,
    released: RankedCondvar,
    payer: Arc<dyn Payer>,
    /// The number of heads in the queue, readable without the lock.
    len: AtomicUsize,
    /// The insertions of these heads, readable without the lock.
    insertions: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    heads: BTreeMap<Logical, Head>,
    locked: HashSet<Logical>,
    /// Where the next batch begins, so that no head waits for ever.
    next: Logical,
    /// The insertions of all heads.
    insertions: u64,
    /// The insertions of heads that threads run now.
    running: u64,
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
    /// An empty queue.
    pub fn new(payer: Arc<dyn Payer>) -> Self {
        Self {
            queue: RankedMutex::default(),
            released: RankedCondvar::default(),
            payer,
            len: AtomicUsize::new(0),
            insertions: AtomicU64::new(0),
        }
    }

    /// Queues the first references to an extent that was just allocated.
    pub fn add_new(&self, extent: ExtentRef, referrer: Referrer, count: u32) {
        self.edit(|queue| {
            queue.edit_head(extent, |head| {
                head.is_new = true;
                head.change(referrer, i64::from(count));
            });
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
        self.edit(|queue| queue.edit_head(extent, |head| head.sets_full_backref = true));
    }

    /// How many extents have changes. Exact while no other thread queues or runs any.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// How many items running all of it may insert at worst: a measure of the memory and of the
    /// space that it takes. As exact as [`len`](Self::len).
    pub fn insertions(&self) -> u64 {
        self.insertions.load(Relaxed)
    }

    /// Whether nothing is queued. Heads that a runner has taken do not count.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last head that begins at `logical` or before.
    pub(crate) fn at_or_before(&self, logical: Logical) -> Option<(Logical, Head)> {
        let queue = self.queue.lock();
        queue.heads.range(..=logical).next_back().map(|(at, head)| (*at, head.clone()))
    }

    /// Waits until no other thread has locked the ref head at `logical`, and locks it.
    pub fn lock_head(&self, logical: Logical) -> HeadLock<'_> {
        let held = Held::wait_for(HOLDS);
        let mut queue = self.queue.lock();
        while !queue.locked.insert(logical) {
            self.released.wait(&mut queue);
        }
        HeadLock { refs: self, logical, _held: held }
    }

    /// Takes the heads of up to `limit` extents that no thread has locked, and locks them.
    pub fn take(&self, limit: usize) -> Batch<'_> {
        let heads = self.edit(|queue| queue.take(limit));
        Batch { refs: self, heads, _held: Held::tried(HOLDS) }
    }

    /// Drops everything. Only after the transaction was aborted.
    pub fn clear(&self) {
        self.edit(|queue| {
            queue.heads.clear();
            queue.insertions = 0;
        });
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = self.queue.lock();
        let owed = queue.owed();
        let result = edit(&mut queue);
        self.len.store(queue.heads.len(), Relaxed);
        self.insertions.store(queue.insertions, Relaxed);
        if queue.owed() != owed {
            self.payer.owe(queue.owed());
        }
        result
    }

    fn unlock(&self, logicals: impl Iterator<Item = Logical>, ran: u64) {
        self.edit(|queue| {
            queue.running -= ran;
            logicals.for_each(|logical| {
                assert!(queue.locked.remove(&logical), "a ref head is unlocked once");
            });
        });
        self.released.notify_all();
    }
}

impl Queue {
    /// The insertions that are paid for.
    fn owed(&self) -> u64 {
        self.insertions + self.running
    }

    fn edit_head<R>(&mut self, extent: ExtentRef, edit: impl FnOnce(&mut Head) -> R) -> R {
        let (head, before) = match self.heads.entry(extent.logical) {
            Entry::Vacant(new) => (new.insert(Head::new(extent.len_bytes, extent.kind)), 0),
            Entry::Occupied(head) => {
                let before = head.get().insertions();
                (head.into_mut(), before)
            }
        };
        head.compare(extent.len_bytes, extent.kind);
        let result = edit(head);
        self.insertions = self.insertions - before + head.insertions();
        result
    }

    fn remove(&mut self, logical: Logical) -> Head {
        let head = self.heads.remove(&logical).expect("it was just there");
        self.insertions -= head.insertions();
        head
    }

    fn change(&mut self, extent: ExtentRef, referrer: Referrer, count: i64) -> Queued {
        let (touches_nothing, is_new) = self.edit_head(extent, |head| {
            head.change(referrer, count);
            (head.touches_nothing(), head.is_new)
        });
        // The runner is to remove the checksums of new data.
        if !touches_nothing || (is_new && extent.kind == ExtentKind::Data) {
            return Queued::Pending;
        }
        self.remove(extent.logical);
        if is_new { Queued::Dissolved } else { Queued::Pending }
    }

    fn take(&mut self, limit: usize) -> Vec<(Logical, Head)> {
        let Self { heads, locked, next, .. } = self;
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
            self.locked.insert(logical);
            let head = self.remove(logical);
            self.running += head.insertions();
            (logical, head)
        };
        chosen.into_iter().map(take).collect()
    }
}

/// The right to decide by the number of references of one block.
#[derive(Debug)]
pub struct HeadLock<'a> {
    refs: &'a DelayedRefs,
    logical: Logical,
    _held: Held,
}

impl HeadLock<'_> {
    /// The changes that are queued.
    pub fn pending(&self) -> Option<Head> {
        self.refs.queue.lock().heads.get(&self.logical).cloned()
    }
}

impl Drop for HeadLock<'_> {
    fn drop(&mut self) {
        self.refs.unlock([self.logical].into_iter(), 0);
    }
}

/// Heads to be run, held until the batch is dropped.
#[derive(Debug)]
pub struct Batch<'a> {
    refs: &'a DelayedRefs,
    heads: Vec<(Logical, Head)>,
    _held: Held,
}

impl Batch<'_> {
    /// The heads in order of their addresses.
    pub fn heads(&self) -> &[(Logical, Head)] {
        &self.heads
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let ran = self.heads.iter().map(|(_, head)| head.insertions()).sum();
        self.refs.unlock(self.heads.iter().map(|(logical, _)| *logical), ran);
    }
}

#[cfg(test)]
mod tests {
    use larder_format::Key;

    use super::*;

    const TREE_5: Referrer = Referrer::Tree { root: 5 };
    const TREE_257: Referrer = Referrer::Tree { root: 257 };

    /// Notes what is owed.
    #[derive(Debug, Default)]
    struct Note(AtomicU64);

    impl Payer for Note {
        fn owe(&self, insertions: u64) {
            self.0.store(insertions, Relaxed);
        }
    }

    fn refs() -> DelayedRefs {
        DelayedRefs::new(Arc::<Note>::default())
    }

    fn block(logical: u64) -> ExtentRef {
        let kind = ExtentKind::TreeBlock { level: 0, first_key: Key::MIN };
        ExtentRef { logical: Logical(logical), len_bytes: 16384, kind }
    }

    #[test]
    fn everything_that_is_queued_or_run_is_paid_for() {
        let note = Arc::<Note>::default();
        let refs = DelayedRefs::new(note.clone());
        let owed = || note.0.load(Relaxed);
        let data = ExtentRef { logical: Logical(1 << 30), len_bytes: 4096, kind: ExtentKind::Data };
        let file = |offset| Referrer::File { root: 5, inode: 257, offset };
        for offset in 0..100 {
            let _ = refs.change(data, file(offset), 1);
        }
        assert_eq!((refs.len(), owed()), (1, 101), "one extent, but many references");
        refs.add_new(block(0), TREE_5, 1);
        assert_eq!(owed(), 103);
        let batch = refs.take(1);
        assert_eq!(owed(), 103, "also while it runs");
        refs.set_full_backref(block(1 << 14));
        drop(batch);
        assert_eq!(owed(), refs.insertions());
        drop(refs.take(2));
        assert_eq!((owed(), refs.len()), (0, 0));
        let _ = refs.change(block(0), TREE_5, 1);
        refs.clear();
        assert_eq!(owed(), 0);
    }

    #[test]
    fn opposite_changes_cancel_out() {
        let refs = refs();
        assert_eq!(refs.change(block(0), TREE_5, -1), Queued::Pending);
        assert_eq!(refs.change(block(0), TREE_257, 1), Queued::Pending);
        assert_eq!(refs.len(), 1);
        assert_eq!(refs.change(block(0), TREE_5, 1), Queued::Pending);
        assert_eq!(refs.change(block(0), TREE_257, -1), Queued::Pending);
        assert!(refs.is_empty());
    }

    #[test]
    fn a_new_block_that_goes_again_is_free_at_once() {
        let refs = refs();
        refs.add_new(block(0), TREE_5, 1);
        assert_eq!(refs.change(block(0), TREE_5, -1), Queued::Dissolved);
        assert!(refs.is_empty());
    }

    #[test]
    fn new_data_that_goes_again_is_left_to_the_runner() {
        let refs = refs();
        let extent = ExtentRef { logical: Logical(0), len_bytes: 4096, kind: ExtentKind::Data };
        let file = Referrer::File { root: 5, inode: 257, offset: 0 };
        refs.add_new(extent, file, 1);
        assert_eq!(refs.change(extent, file, -1), Queued::Pending);
        let batch = refs.take(8);
        assert!(batch.heads()[0].1.is_new && batch.heads()[0].1.touches_nothing());
    }

    #[test]
    fn additions_and_drops_are_told_apart() {
        let refs = refs();
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
        let refs = refs();
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
        let refs = refs();
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
