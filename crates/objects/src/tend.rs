//! Looking after a device that is open for writing, also while no program writes: what is due is
//! deleted.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::writer::Writer;

/// A checkpoint that is due waits so long at most, and the deletions as long once more.
const PERIOD: Duration = Duration::from_secs(10);

/// After errors it waits longer: the store may be gone, or the keys may not delete.
const LONGEST_PERIOD: Duration = Duration::from_secs(600);

/// A thread that looks after a writer's objects, until this is dropped.
#[derive(Debug)]
pub(crate) struct Tending {
    ends: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Tending {
    pub(crate) fn begin(writer: &Arc<Writer>) -> Self {
        let (writer, ends) = (Arc::clone(writer), Arc::<(Mutex<bool>, Condvar)>::default());
        let seen = Arc::clone(&ends);
        let tend = move || {
            let (ends, changed) = &*seen;
            let (mut period, timer) = (PERIOD, writer.timer());
            loop {
                let mut ended = ends.lock();
                if !*ended {
                    timer.wait(changed, &mut ended, period);
                }
                if *ended {
                    return;
                }
                drop(ended);
                period = match writer.tend() {
                    Ok(()) => PERIOD,
                    Err(error) => {
                        tracing::debug!("{error}; what is due is deleted later");
                        (period * 2).min(LONGEST_PERIOD)
                    }
                };
            }
        };
        let thread = thread::Builder::new().name("larder-objects".to_owned()).spawn(tend);
        Self { ends, thread: Some(thread.expect("the system starts threads")) }
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        *self.ends.0.lock() = true;
        self.ends.1.notify_all();
        // One that panicked has been reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
