//! Scrubs.

use larder::{DeviceScrub, ScrubEnd, ScrubOptions};
use pyo3::prelude::*;

use crate::error::os_error;
use crate::filesystem::FileSystem;
use crate::jobs::watched;

/// What the scrub of a device has met.
///
/// `state` is "finished", "cancelled", or "missing" if the device is. `scrubbed` bytes were read. Of
/// the sectors that were bad, `corrected` have a good copy, and were repaired unless the scrub was
/// read-only; `uncorrectable` have none; `unverified` were freed before they could be judged.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Scrubbed {
    device: u64,
    state: &'static str,
    scrubbed: u64,
    corrected: u64,
    uncorrectable: u64,
    unverified: u64,
}

impl Scrubbed {
    fn new(scrub: DeviceScrub) -> PyResult<Self> {
        Ok(Self {
            device: scrub.device,
            state: match scrub.end {
                ScrubEnd::Finished => "finished",
                ScrubEnd::Cancelled => "cancelled",
                ScrubEnd::NoDevice => "missing",
                ScrubEnd::Failed(error) => return Err(os_error(&error)),
            },
            scrubbed: scrub.counters.bytes_scrubbed(),
            corrected: scrub.counters.corrected_errors,
            uncorrectable: scrub.counters.uncorrectable_errors,
            unverified: scrub.counters.unverified_errors,
        })
    }
}

#[pymethods]
impl Scrubbed {
    fn __repr__(&self) -> String {
        let Self { device, state, corrected, uncorrectable, .. } = self;
        format!(
            "<larder.Scrubbed {device} {state}: {corrected} corrected, {uncorrectable} beyond repair>"
        )
    }
}

#[pymethods]
impl FileSystem {
    /// Verifies every copy of everything on all devices, and repairs bad ones from good ones, unless
    /// it is `read_only` or the file system is.
    #[pyo3(signature = (*, read_only = false, progress = None))]
    fn scrub(
        &self,
        py: Python<'_>,
        read_only: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Scrubbed>> {
        let filesystem = self.filesystem()?;
        let work = || filesystem.scrub(&ScrubOptions { read_only, ..ScrubOptions::default() });
        let scrubs = watched(py, &filesystem, progress, work)?;
        scrubs.into_iter().map(Scrubbed::new).collect()
    }
}
