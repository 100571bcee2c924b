//! Commits in the background.
//!
//! # Invariants
//! - Nothing changes without an [`Alarm`] that knows of it, so that the thread sleeps while there is nothing to
//!   commit: it wakes when a change has waited for an interval, and when much has changed.
//! - An alarm forgets what there was to do with the door closed, when a commit has taken it, and unless
//!   somebody still has something to do. Whoever changes anything goes in later, and is noted again.
//! - However slow the devices are, what waits for them is bounded: while a commit writes its blocks and as many have
//!   changed again as call for the next, nobody begins another change. Who waits holds neither the door nor a block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::TransactionManager;
use crate::error::Error;

/// A thread that commits what has waited for an interval, so that a crash loses no more than what came after,
/// and earlier when many tree blocks have changed. It ends when this is dropped; a commit at the end is up to
/// the owner. A manager has one at most.
///
/// An error that makes the file system read-only is told to whoever joins; others are reported, and so is a
/// panic, which makes it read-only too.
#[derive(Debug)]
pub struct BackgroundCommits {
    manager: Arc<TransactionManager>,
    thread: Option<JoinHandle<()>>,
}

/// What wakes the thread that commits.
#[derive(Debug)]
pub(crate) struct Alarm {
    state: Mutex<State>,
    rung: Condvar,
    written: Condvar,
    /// Blocks of trees that were allocated since the last commit.
    new_blocks: AtomicU64,
    /// With so many of them it is time for the next.
    most_new_blocks: AtomicU64,
}

/// A commit writes its blocks.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    alarm: &'a Alarm,
}

#[derive(Debug, Default)]
struct State {
    interval: Duration,
    /// There is something to commit.
    has_work: bool,
    /// It is not to wait any longer.
    is_urgent: bool,
    is_ended: bool,
    /// A commit writes its blocks.
    is_writing: bool,
    /// How often the thread woke.
    wakes: u64,
}

impl BackgroundCommits {
    /// What the kernel uses.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

    /// Starts to commit what has waited for `interval`, and whenever changed tree blocks take more than
    /// `most_dirty_bytes`; as many again may change while those are written. Ahead of each it calls `prepare`,
    /// with nothing locked.
    pub fn start(
        manager: Arc<TransactionManager>,
        interval: Duration,
        most_dirty_bytes: usize,
        prepare: impl Fn() + Send + 'static,
    ) -> Self {
        let most_new_blocks = most_dirty_bytes as u64 / u64::from(manager.volume.nodesize());
        let alarm = &manager.accounting.alarm;
        alarm.most_new_blocks.store(most_new_blocks.max(1), Relaxed);
        alarm.state.lock().interval = interval;
        let its_manager = manager.clone();
        let work = move || {
            while its_manager.accounting.alarm.wait() {
                let commit = || {
                    prepare();
                    its_manager.commit()
                };
                match catch_unwind(AssertUnwindSafe(commit)) {
                    // Whoever joins is told.
                    Ok(Ok(_) | Err(Error::Aborted(_))) => {}
                    Ok(Err(_)) if its_manager.aborted().is_some() => {}
                    Ok(Err(error)) => {
                        tracing::error!("a commit failed, and will be tried again: {error}");
                    }
                    Err(_) => its_manager.abort(Error::Panicked),
                }
            }
        };
        let thread = std::thread::Builder::new().name("larder-commit".into()).spawn(work);
        Self { manager, thread: thread.ok() }
    }

    /// Changes the interval, which begins anew.
    pub fn set_interval(&self, interval: Duration) {
        self.manager.accounting.alarm.change(|state| state.interval = interval);
    }

    /// How often the thread woke up. It does not while there is nothing to commit.
    pub fn wakes(&self) -> u64 {
        self.manager.accounting.alarm.state.lock().wakes
    }
}

impl Alarm {
    /// Notes that there is something to commit.
    pub(super) fn note_work(&self) {
        let mut state = self.state.lock();
        if !state.has_work {
            state.has_work = true;
            self.rung.notify_all();
        }
    }

    /// Notes that all there was to do is done. The door is closed.
    pub(super) fn rest(&self) {
        self.state.lock().has_work = false;
    }

    /// Notes a new block of a tree.
    pub(super) fn block_added(&self) {
        let new_blocks = self.new_blocks.fetch_add(1, Relaxed) + 1;
        if new_blocks == self.most_new_blocks.load(Relaxed) {
            self.change(|state| state.is_urgent = true);
        }
    }

    /// Notes that a commit has taken all blocks. The door is closed.
    pub(super) fn blocks_taken(&self) {
        self.new_blocks.store(0, Relaxed);
    }

    /// Notes that a commit writes its blocks, until the result is dropped.
    pub(super) fn writing(&self) -> Writing<'_> {
        self.state.lock().is_writing = true;
        Writing { alarm: self }
    }

    /// Waits while one commit writes its blocks and there are enough for the next.
    pub(super) fn wait_for_devices(&self) {
        if self.has_enough_blocks() {
            let mut state = self.state.lock();
            self.written
                .wait_while(&mut state, |state| state.is_writing && self.has_enough_blocks());
        }
    }

    fn has_enough_blocks(&self) -> bool {
        self.new_blocks.load(Relaxed) >= self.most_new_blocks.load(Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.rung.notify_all();
    }

    /// Waits until there is something that has waited for an interval, or is urgent; whether to go on after
    /// it.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        let mut waits = None;
        loop {
            if state.is_ended || state.is_urgent {
                state.is_urgent = false;
                return !state.is_ended;
            }
            if state.has_work {
                let (start, interval) = *waits.get_or_insert((Instant::now(), state.interval));
                if start.elapsed() >= interval {
                    return true;
                }
                self.rung.wait_until(&mut state, start + interval);
                waits = waits.filter(|_| state.interval == interval);
            } else {
                waits = None;
                self.rung.wait(&mut state);
            }
            state.wakes += 1;
        }
    }
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            rung: Condvar::new(),
            written: Condvar::new(),
            new_blocks: AtomicU64::new(0),
            most_new_blocks: AtomicU64::new(u64::MAX),
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.alarm.state.lock().is_writing = false;
        self.alarm.written.notify_all();
    }
}

impl Drop for BackgroundCommits {
    fn drop(&mut self) {
        self.manager.accounting.alarm.change(|state| state.is_ended = true);
        if let Some(thread) = self.thread.take() {
            // It catches its panics.
            let _ = thread.join();
        }
        self.manager.accounting.alarm.change(|state| state.is_ended = false);
    }
}
