//! Commits in the background.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::TransactionManager;

/// How often it is looked whether there is much to write.
const GLANCE: Duration = Duration::from_millis(100);

/// A thread that commits at intervals, so that a crash loses no more than what came after, and earlier
/// when many changed tree blocks have piled up in memory. It ends when this is dropped; a commit at the
/// end is up to the owner.
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

    /// Starts to commit every `interval`, and whenever changed tree blocks take more than
    /// `most_dirty_bytes`. Ahead of each it calls `prepare`, with nothing locked.
    pub fn start(
        manager: Arc<TransactionManager>,
        interval: Duration,
        most_dirty_bytes: usize,
        prepare: impl Fn() + Send + 'static,
    ) -> Self {
        let state = Mutex::new(State { interval, is_ended: false });
        let control = Arc::new(Control { state, changed: Condvar::new() });
        let seen_by_thread = control.clone();
        let work = move || {
            let is_much = || manager.dirty_bytes() > most_dirty_bytes as u64;
            while seen_by_thread.wait(is_much) {
                prepare();
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
    /// Waits for one whole interval, or until there is much to write; whether to go on after it.
    fn wait(&self, is_much: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        let mut start = Instant::now();
        loop {
            let interval = state.interval;
            let until = (start + interval).min(Instant::now() + GLANCE);
            self.changed.wait_until(&mut state, until);
            if state.is_ended {
                return false;
            }
            if state.interval != interval {
                start = Instant::now();
            } else if start.elapsed() >= interval || is_much() {
                return true;
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
