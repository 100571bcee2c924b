//! Long calls that Ctrl-C ends.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

/// How often a waiting thread looks at signals.
const GLANCE: Duration = Duration::from_millis(50);

/// Says to long work whether it goes on.
#[derive(Clone, Default)]
pub(crate) struct Going(Arc<AtomicBool>);

impl Going {
    pub(crate) fn on(&self) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does long work in another thread, while other Python threads run and this one looks at signals.
/// What the handler of a signal raises stops the work, and is raised once that has ended.
///
/// Python runs the handlers of signals in its main thread only, so work in threads cannot look at
/// signals itself.
pub(crate) fn interruptibly<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Going) -> T + Send,
) -> PyResult<T> {
    let going = Going::default();
    py.detach(|| {
        thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            let going = &going;
            let worker = scope.spawn(move || {
                // It is dropped after the work, also by a panic.
                let _end = end;
                work(going)
            });
            let mut raised = None;
            while raised.is_none() && ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                raised = Python::attach(|py| py.check_signals().err());
            }
            if raised.is_some() {
                going.stop();
            }
            let result = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            raised.map_or(Ok(result), Err)
        })
    })
}
