//! Commits in the background.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::TransactionManager;

/// A thread that commits at intervals, so that a crash loses no more than what came after. It ends
/// when this is dropped; a commit at the end is up to the owner.
///
/// An error needs no reader here: it makes the file system read-only, and whoever joins is told.
#[derive(Debug)]
pub struct BackgroundCommits {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    interval: Duration,
    is_ended: bool,
}

impl BackgroundCommits {
    /// What the kernel uses.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

    /// Starts to commit every `interval`.
    pub fn start(manager: Arc<TransactionManager>, interval: Duration) -> Self {
        let state = Mutex::new(State { interval, is_ended: false });
        let control = Arc::new(Control { state, changed: Condvar::new() });
        let seen_by_thread = control.clone();
        let work = move || {
            while seen_by_thread.wait() {
                // The manager keeps the reason.
                let _ = manager.commit();
            }
        };
        let thread = std::thread::Builder::new().name("larder-commit".into()).spawn(work);
        Self { control, thread: thread.ok() }
    }

    /// Changes the interval, which begins anew.
    pub fn set_interval(&self, interval: Duration) {
        self.control.state.lock().interval = interval;
        self.control.changed.notify_all();
    }
}

impl Control {
    /// Waits for one whole interval; whether to go on after it.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        let mut start = Instant::now();
        loop {
            if state.is_ended {
                return false;
            }
            let interval = state.interval;
            let was_changed = !self.changed.wait_until(&mut state, start + interval).timed_out();
            if state.is_ended {
                return false;
            }
            if !was_changed {
                return true;
            }
            if state.interval != interval {
                start = Instant::now();
            }
        }
    }
}

impl Drop for BackgroundCommits {
    fn drop(&mut self) {
        self.control.state.lock().is_ended = true;
        self.control.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}
