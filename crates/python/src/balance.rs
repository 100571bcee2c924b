//! Balances.

use larder::{Balance, BalanceEnd, BalanceItem};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::filesystem::FileSystem;
use crate::jobs::watched;
use crate::options::invalid;

/// What a balance did.
///
/// `state` is "finished", "paused" or "cancelled". Of the block groups that were there, `considered`
/// were looked at; `expected` were to move, `completed` have, and `without_room` found no room and
/// stayed. `copied` bytes have moved.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Balanced {
    state: &'static str,
    expected: u64,
    considered: u64,
    completed: u64,
    without_room: u64,
    copied: u64,
}

impl From<Balance> for Balanced {
    fn from(Balance { done, end }: Balance) -> Self {
        Self {
            state: match end {
                BalanceEnd::Finished => "finished",
                BalanceEnd::Paused => "paused",
                BalanceEnd::Cancelled => "cancelled",
            },
            expected: done.progress.expected,
            considered: done.progress.considered,
            completed: done.progress.completed,
            without_room: done.without_room,
            copied: done.moved.copied_bytes,
        }
    }
}

#[pymethods]
impl Balanced {
    fn __repr__(&self) -> String {
        let Self { state, completed, considered, .. } = self;
        format!("<larder.Balanced {state}: {completed} out of {considered} chunks>")
    }
}

#[pymethods]
impl FileSystem {
    /// Moves block groups: those of data, metadata and the chunk tree that the filters let pass, or
    /// all without any. Filters are those of `btrfs balance start`: "usage=50,limit=2"; "" lets all
    /// of its kind pass. With `force` metadata may become less safe.
    #[pyo3(signature = (
        *, data = None, metadata = None, system = None, force = false, progress = None,
    ))]
    fn balance(
        &self,
        py: Python<'_>,
        data: Option<&str>,
        metadata: Option<&str>,
        system: Option<&str>,
        force: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Balanced> {
        let filesystem = self.filesystem()?;
        let wanted = BalanceItem::from_filters(data, metadata, system, force).map_err(invalid)?;
        let work = || filesystem.balance(&wanted, &|_| ());
        watched(py, &filesystem, progress, work).map(Balanced::from)
    }

    /// Goes on with a balance that was paused or interrupted, also one of the kernel. None if there
    /// is none.
    #[pyo3(signature = (*, progress = None))]
    fn resume_balance(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<Balanced>> {
        let filesystem = self.filesystem()?;
        let resumed = watched(py, &filesystem, progress, || filesystem.resume_balance(&|_| ()));
        Ok(resumed?.map(Balanced::from))
    }

    /// Ends the balance that goes on, so that it can be resumed. Returns whether there was one.
    fn pause_balance(&self, py: Python<'_>) -> PyResult<bool> {
        let filesystem = self.filesystem()?;
        py.detach(|| filesystem.pause_balance()).or_raise()
    }

    /// Ends a balance, whether it goes on or pauses. Returns whether there was one.
    fn cancel_balance(&self, py: Python<'_>) -> PyResult<bool> {
        let filesystem = self.filesystem()?;
        py.detach(|| filesystem.cancel_balance()).or_raise()
    }
}
