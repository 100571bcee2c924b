//! Range locks: shared and exclusive locks on ranges of addresses, on top of the index.
//!
//! What is held is an index: an exclusive lock is one entry, shared locks are entries with a count
//! that are cut where one of them begins or ends. Taking a free range is one edit of the index, so
//! threads in different places do not meet.
//!
//! Invariants
//! - Who cannot have a range at once queues, and takes part in one order with all who queue. A
//!   request never overtakes a queued one that conflicts with it, so nobody waits for ever.
//! - A waiter is counted before it looks at the index for the last time; who gives a range back
//!   changes the index before it looks at the count. One of the two sees the other.
//! - Entries of shared locks cover exactly the addresses that are held, with the number of holders.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::RangeIndex;
use crate::block::{BlockRef, Piece};
use crate::edit::{Pieces, Plan};
use crate::insert::assert_not_empty;
use crate::iterate::Entry;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, thread};

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Together with others who share.
    Shared,
    /// Alone.
    Exclusive,
}

/// Who holds a stretch.
#[derive(Clone, Copy, PartialEq)]
enum Holders {
    One,
    Sharing(u32),
}

/// Locks on ranges of addresses below `u64::MAX`. Fair: those who conflict are served in the order
/// in which they came.
#[derive(Default)]
pub struct RangeLock {
    held: RangeIndex<Holders>,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
    /// The length of the queue.
    waiting: AtomicUsize,
}

/// A request in the queue.
struct Waiter {
    range: Range<u64>,
    mode: Mode,
    thread: thread::Thread,
    granted: AtomicBool,
}

impl Waiter {
    fn conflicts(&self, range: &Range<u64>, mode: Mode) -> bool {
        let meet = self.range.start < range.end && range.start < self.range.end;
        meet && (self.mode == Mode::Exclusive || mode == Mode::Exclusive)
    }
}

/// A range that is locked until this is dropped.
#[must_use = "the range is unlocked when the guard is dropped"]
pub struct RangeLockGuard<'a> {
    lock: &'a RangeLock,
    range: Range<u64>,
    mode: Mode,
}

impl RangeLockGuard<'_> {
    /// What is locked.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// How it is locked.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl Drop for RangeLockGuard<'_> {
    fn drop(&mut self) {
        self.lock.give_back(&self.range, self.mode);
    }
}

/// Collects pieces, and joins those that meet and have the same holders.
#[derive(Default)]
struct Joined(Pieces<Holders>);

impl Joined {
    fn push(&mut self, start: u64, end: u64, sharing: u32) {
        let value = Holders::Sharing(sharing);
        match self.0.last_mut() {
            _ if start == end || sharing == 0 => {}
            Some(last) if last.end == start && last.value == value => last.end = end,
            _ => self.0.push(Piece { start, end, value }),
        }
    }
}

fn sharing(entry: &Entry<'_, Holders>) -> Option<u32> {
    match entry.value {
        Holders::One => None,
        Holders::Sharing(count) => Some(*count),
    }
}

/// The entries around `range` after `change` of the number of those who share each part of it;
/// none when a part is held by one alone. `range` lies within the tile.
fn reshared(
    block: BlockRef<'_, Holders>,
    range: &Range<u64>,
    change: impl Fn(u32) -> u32,
) -> Option<(Range<usize>, Pieces<Holders>)> {
    let mut replace = block.overlapping(range);
    let shared_at = |index| sharing(&Entry::at(block, index));
    let mut pieces = Joined::default();
    // A neighbour that meets the range may become one with what is in it.
    if replace.start > 0
        && block.end(replace.start - 1) == range.start
        && let Some(count) = shared_at(replace.start - 1)
    {
        replace.start -= 1;
        pieces.push(block.key(replace.start), range.start, count);
    }
    let mut from = range.start;
    for index in replace.clone() {
        let entry = Entry::at(block, index);
        let count = sharing(&entry)?;
        let inside = entry.start.max(range.start)..entry.end.min(range.end);
        if inside.is_empty() {
            continue;
        }
        pieces.push(entry.start, inside.start, count);
        pieces.push(from, inside.start, change(0));
        pieces.push(inside.start, inside.end, change(count));
        from = inside.end;
        if entry.end > range.end {
            pieces.push(range.end, entry.end, count);
        }
    }
    pieces.push(from, range.end, change(0));
    if replace.end < block.len()
        && block.key(replace.end) == range.end
        && let Some(count) = shared_at(replace.end)
    {
        pieces.push(range.end, block.end(replace.end), count);
        replace.end += 1;
    }
    Some((replace, pieces.0))
}

impl RangeLock {
    /// Locks nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks a range; waits until nobody holds a conflicting lock.
    ///
    /// A thread that asks for what it holds itself waits for ever.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn lock(&self, range: Range<u64>, mode: Mode) -> RangeLockGuard<'_> {
        self.lock_until(range, mode, None).expect("without a deadline the wait ends with the lock")
    }

    /// Locks a range, or gives up after `timeout`.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn lock_for(
        &self,
        range: Range<u64>,
        mode: Mode,
        timeout: Duration,
    ) -> Option<RangeLockGuard<'_>> {
        self.lock_until(range, mode, Instant::now().checked_add(timeout))
    }

    /// Locks a range if nobody holds a conflicting lock and nobody waits for one.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn try_lock(&self, range: Range<u64>, mode: Mode) -> Option<RangeLockGuard<'_>> {
        assert_not_empty(&range);
        let free = self.is_queue_empty() || !Self::conflicts(&self.queue.lock(), &range, mode);
        (free && self.take(&range, mode)).then(|| RangeLockGuard { lock: self, range, mode })
    }

    fn lock_until(
        &self,
        range: Range<u64>,
        mode: Mode,
        deadline: Option<Instant>,
    ) -> Option<RangeLockGuard<'_>> {
        assert_not_empty(&range);
        let taken = self.is_queue_empty() && self.take(&range, mode);
        let taken = taken || self.wait_for(&range, mode, deadline);
        taken.then(|| RangeLockGuard { lock: self, range, mode })
    }

    fn is_queue_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    fn conflicts(queue: &VecDeque<Arc<Waiter>>, range: &Range<u64>, mode: Mode) -> bool {
        queue.iter().any(|earlier| earlier.conflicts(range, mode))
    }

    /// Queues and waits; false when the deadline has passed.
    fn wait_for(&self, range: &Range<u64>, mode: Mode, deadline: Option<Instant>) -> bool {
        let waiter = Arc::new(Waiter {
            range: range.clone(),
            mode,
            thread: thread::current(),
            granted: AtomicBool::new(false),
        });
        let mut queue = self.queue.lock();
        queue.push_back(Arc::clone(&waiter));
        self.waiting.store(queue.len(), Ordering::SeqCst);
        self.grant(queue);
        loop {
            if waiter.granted.load(Ordering::SeqCst) {
                return true;
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => break,
                Some(left) => thread::park_timeout(left),
            }
        }
        let mut queue = self.queue.lock();
        if waiter.granted.load(Ordering::SeqCst) {
            return true;
        }
        queue.retain(|other| !Arc::ptr_eq(other, &waiter));
        self.waiting.store(queue.len(), Ordering::SeqCst);
        // Others may have waited for this one only.
        self.grant(queue);
        false
    }

    /// Gives ranges to those in the queue who can have them, the first first.
    fn grant(&self, mut queue: MutexGuard<'_, VecDeque<Arc<Waiter>>>) {
        let mut still = VecDeque::with_capacity(queue.len());
        while let Some(waiter) = queue.pop_front() {
            let overtakes = Self::conflicts(&still, &waiter.range, waiter.mode);
            if !overtakes && self.take(&waiter.range, waiter.mode) {
                waiter.granted.store(true, Ordering::SeqCst);
                waiter.thread.unpark();
            } else {
                still.push_back(waiter);
            }
        }
        *queue = still;
        self.waiting.store(queue.len(), Ordering::SeqCst);
    }

    /// Enters a range into the index of what is held, unless it conflicts with what is there.
    fn take(&self, range: &Range<u64>, mode: Mode) -> bool {
        if mode == Mode::Exclusive {
            return self.held.insert(range.clone(), Holders::One).is_ok();
        }
        self.held.edit(range.start, |block| {
            let visible = range.start..range.end.min(block.high());
            let change = |count: u32| count.checked_add(1).expect("fewer than 2^32 holders");
            match reshared(block, &visible, change) {
                None => Plan::Keep(false),
                Some(_) if visible.end < range.end => Plan::Reach(range.end),
                Some((replace, with)) => Plan::Splice { replace, with, result: true },
            }
        })
    }

    /// Takes a held range out of the index, and lets those in who waited for it.
    fn give_back(&self, range: &Range<u64>, mode: Mode) {
        if mode == Mode::Exclusive {
            let removed = self.held.remove(range.start);
            debug_assert_eq!(removed.map(|(range, _)| range).as_ref(), Some(range));
        } else {
            self.held.edit(range.start, |block| {
                if range.end > block.high() {
                    return Plan::Reach(range.end);
                }
                let (replace, with) = reshared(block, range, |count| count.saturating_sub(1))
                    .expect("what is shared is not held by one alone");
                Plan::Splice { replace, with, result: () }
            });
        }
        if !self.is_queue_empty() {
            self.grant(self.queue.lock());
        }
    }
}
