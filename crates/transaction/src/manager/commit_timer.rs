//! When the next commit in the background is due.
//!
//! # Invariants
//! - Every change is noted here, so that the thread that commits sleeps while there is nothing to
//!   commit. It wakes when a change has waited for an interval, and when many blocks have changed.
//! - A commit clears the note while the join gate is quiesced, after it has taken all changes,
//!   unless a queue still has some. A thread that changes something later joins later, and is noted
//!   again.
//! - However slow the devices are, the changes that wait for them are bounded: while one commit
//!   writes its blocks and enough blocks for the next have changed, no thread joins. Such a thread
//!   waits before it joins, so it holds no tree block.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_locks::rank::COMMIT_TIMER;
use larder_locks::{RankedCondvar, RankedMutex};

use super::exclusive::Exclusive;

/// When the next commit in the background is due.
#[derive(Debug)]
pub(super) struct CommitTimer {
    state: RankedMutex<State, COMMIT_TIMER>,
    /// Wakes the thread that commits.
    due: RankedCondvar,
    /// Wakes threads that wait for a commit to write its blocks.
    written: RankedCondvar,
    /// Tree blocks that were allocated since the last commit took them.
    new_blocks: AtomicU64,
    /// With so many new blocks a commit is due.
    most_new_blocks: AtomicU64,
}

/// A commit is writing its blocks, until this is dropped.
#[derive(Debug)]
pub(super) struct Writing<'t> {
    timer: &'t CommitTimer,
}

#[derive(Debug, Default)]
struct State {
    interval: Duration,
    /// There is something to commit.
    has_work: bool,
    /// A commit is due now.
    is_urgent: bool,
    is_ended: bool,
    is_writing: bool,
    /// How often the thread that commits woke.
    wakes: u64,
}

impl CommitTimer {
    /// Restarts the timer. A commit is due `interval` after a change, and whenever
    /// `most_new_blocks` tree blocks are new.
    pub(super) fn start(&self, interval: Duration, most_new_blocks: u64) {
        self.most_new_blocks.store(most_new_blocks.max(1), Relaxed);
        self.change(|state| {
            state.interval = interval;
            state.is_ended = false;
        });
    }

    /// Ends the thread that [waits](Self::wait).
    pub(super) fn end(&self) {
        self.change(|state| state.is_ended = true);
    }

    /// Changes the interval. A wait in progress starts again.
    pub(super) fn set_interval(&self, interval: Duration) {
        self.change(|state| state.interval = interval);
    }

    /// How often the thread that waits has woken up. It does not wake while there is nothing to
    /// commit.
    pub(super) fn wakes(&self) -> u64 {
        self.state.lock().wakes
    }

    /// Notes that there is something to commit.
    pub(super) fn note_work(&self) {
        let mut state = self.state.lock();
        if !state.has_work {
            state.has_work = true;
            self.due.notify_all();
        }
    }

    /// Notes that a commit has taken all changes.
    pub(super) fn clear_work(&self, _: &Exclusive<'_>) {
        self.state.lock().has_work = false;
    }

    /// Notes a new tree block.
    pub(super) fn note_new_block(&self) {
        let new_blocks = self.new_blocks.fetch_add(1, Relaxed) + 1;
        if new_blocks == self.most_new_blocks.load(Relaxed) {
            self.change(|state| state.is_urgent = true);
        }
    }

    /// Notes that a commit has taken all new blocks.
    pub(super) fn clear_new_blocks(&self, _: &Exclusive<'_>) {
        self.new_blocks.store(0, Relaxed);
    }

    /// Notes that a commit is writing its blocks, until the result is dropped.
    pub(super) fn writing(&self) -> Writing<'_> {
        self.state.lock().is_writing = true;
        Writing { timer: self }
    }

    /// Waits while one commit writes its blocks and there are enough new ones for the next.
    pub(super) fn wait_for_devices(&self) {
        if self.has_enough_blocks() {
            let mut state = self.state.lock();
            self.written
                .wait_while(&mut state, |state| state.is_writing && self.has_enough_blocks());
        }
    }

    /// Waits until a commit is due. Returns false once the timer has [ended](Self::end).
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        let mut started = None;
        loop {
            if state.is_ended || state.is_urgent {
                state.is_urgent = false;
                return !state.is_ended;
            }
            if state.has_work {
                let (start, interval) = *started.get_or_insert((Instant::now(), state.interval));
                if start.elapsed() >= interval {
                    return true;
                }
                self.due.wait_until(&mut state, start + interval);
                started = started.filter(|_| state.interval == interval);
            } else {
                started = None;
                self.due.wait(&mut state);
            }
            state.wakes += 1;
        }
    }

    fn has_enough_blocks(&self) -> bool {
        self.new_blocks.load(Relaxed) >= self.most_new_blocks.load(Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.due.notify_all();
    }
}

impl Default for CommitTimer {
    fn default() -> Self {
        Self {
            state: RankedMutex::default(),
            due: RankedCondvar::default(),
            written: RankedCondvar::default(),
            new_blocks: AtomicU64::new(0),
            most_new_blocks: AtomicU64::new(u64::MAX),
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.timer.state.lock().is_writing = false;
        self.timer.written.notify_all();
    }
}
