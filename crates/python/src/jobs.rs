//! Long work on a file system: watched, limited and cancelled.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use larder::JobStatus;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::filesystem::FileSystem;

/// Long work on a file system that goes on, or has ended.
///
/// `kind` is "scrub", "balance", "replace", "remove", "resize", "convert", "complete" or "add", and
/// `device` the id of the device that it is about, or None. `total_bytes` is what is to do, as far as
/// it is known, and `done_bytes` what of that is done; `rate` is in bytes in a second. `remaining`
/// and `duration` are seconds, pauses included, and `started` is a time as `time.time()` has it.
#[pyclass(frozen, module = "larder")]
pub(crate) struct Job(Arc<larder::Job>);

impl Job {
    fn status(&self) -> JobStatus {
        self.0.status()
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind().name()
    }

    #[getter]
    fn device(&self) -> Option<u64> {
        self.0.kind().device()
    }

    #[getter]
    fn started(&self) -> f64 {
        self.status().started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }

    #[getter]
    fn duration(&self) -> f64 {
        self.status().duration.as_secs_f64()
    }

    #[getter]
    fn done_bytes(&self) -> u64 {
        self.status().done_bytes
    }

    #[getter]
    fn total_bytes(&self) -> u64 {
        self.status().total_bytes
    }

    #[getter]
    fn rate(&self) -> u64 {
        self.status().rate()
    }

    #[getter]
    fn remaining(&self) -> Option<f64> {
        self.status().remaining().map(|left: Duration| left.as_secs_f64())
    }

    /// Whether it pauses.
    #[getter]
    fn paused(&self) -> bool {
        self.status().is_paused
    }

    /// The most bytes in a second, or None.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.status().limit
    }

    #[setter]
    fn set_limit(&self, limit: Option<u64>) {
        self.0.set_limit(limit);
    }

    /// Makes it wait until `resume` is called.
    fn pause(&self) {
        self.0.pause();
    }

    /// Ends a pause.
    fn resume(&self) {
        self.0.go_on();
    }

    /// Ends it soon. The call that does the work raises InterruptedError, or says so.
    fn cancel(&self) {
        self.0.cancel();
    }

    fn __repr__(&self) -> String {
        let JobStatus { kind, done_bytes, total_bytes, .. } = self.status();
        format!("<larder.Job {kind}: {done_bytes} of {total_bytes} bytes>")
    }
}

#[pymethods]
impl FileSystem {
    /// The long work that goes on now, begun by any thread.
    fn jobs(&self) -> PyResult<Vec<Job>> {
        Ok(self.filesystem()?.jobs().running().into_iter().map(Job).collect())
    }
}

/// Does long work in another thread, while this one looks at signals and calls `progress` with each
/// job of that work. What either raises cancels the work, and is raised once that has ended.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    filesystem: &larder::Filesystem,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce() -> larder::Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let look = |jobs: &[Arc<larder::Job>]| {
        let told = Python::attach(|py| {
            py.check_signals()?;
            jobs.iter().try_for_each(|job| match &progress {
                Some(progress) => progress.call1(py, (Job(job.clone()),)).map(drop),
                None => Ok(()),
            })
        });
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let done = py.detach(|| filesystem.jobs().watch(work, look));
    match raised {
        Some(error) => Err(error),
        None => done?.or_raise(),
    }
}
