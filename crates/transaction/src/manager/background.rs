//! Commits in the background.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::TransactionManager;
use crate::error::Error;

/// A thread that commits changes that have waited for an interval, so that a crash loses only later
/// ones. It commits earlier when many tree blocks have changed. It ends when this is dropped; the
/// owner makes the last commit. A manager has at most one.
///
/// After an error that makes the file system read-only, threads that join get that error. The
/// thread reports other errors. A panic is reported too, and makes the file system read-only.
#[derive(Debug)]
pub struct BackgroundCommits {
    manager: Arc<TransactionManager>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundCommits {
    /// The kernel's interval.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

    /// Starts to commit changes that have waited for `interval`, and whenever changed tree blocks
    /// take more than `most_dirty_bytes`; as many again may change while a commit writes those.
    /// Before each commit it calls `prepare`, with nothing locked.
    pub fn start(
        manager: Arc<TransactionManager>,
        interval: Duration,
        most_dirty_bytes: usize,
        prepare: impl Fn() + Send + 'static,
    ) -> Self {
        let most_new_blocks = most_dirty_bytes as u64 / u64::from(manager.volume().nodesize());
        manager.timer().start(interval, most_new_blocks);
        let its_manager = manager.clone();
        let work = move || {
            while its_manager.timer().wait() {
                commit(&its_manager, &prepare);
            }
        };
        let thread = std::thread::Builder::new().name("larder-commit".into()).spawn(work);
        Self { manager, thread: thread.ok() }
    }

    /// Changes the interval. A wait in progress starts again.
    pub fn set_interval(&self, interval: Duration) {
        self.manager.timer().set_interval(interval);
    }

    /// How often the thread woke up. It does not wake while there is nothing to commit.
    pub fn wakes(&self) -> u64 {
        self.manager.timer().wakes()
    }
}

fn commit(manager: &TransactionManager, prepare: &impl Fn()) {
    let commit = || {
        prepare();
        manager.commit()
    };
    match catch_unwind(AssertUnwindSafe(commit)) {
        // Threads that join get the error.
        Ok(Ok(_) | Err(Error::Aborted(_))) => {}
        Ok(Err(_)) if manager.aborted().is_some() => {}
        Ok(Err(error)) => {
            tracing::error!("a commit failed, and will be tried again: {error}");
        }
        Err(_) => manager.abort(Error::Panicked),
    }
}

impl Drop for BackgroundCommits {
    fn drop(&mut self) {
        self.manager.timer().end();
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }
}
