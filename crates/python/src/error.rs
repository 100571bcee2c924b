//! Failures as exceptions.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::path::FsPath;

/// Makes exceptions of the library's errors. Python selects the subclass of `OSError` by the
/// number.
pub(crate) trait OrRaise<T> {
    /// Raises a failure as it is.
    fn or_raise(self) -> PyResult<T>;

    /// Raises a failure with the path that the caller gave.
    fn or_raise_about(self, path: &FsPath) -> PyResult<T>;

    /// Raises a failure with both paths that the caller gave.
    fn or_raise_about_both(self, from: &FsPath, to: &FsPath) -> PyResult<T>;
}

impl<T> OrRaise<T> for larder::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| os_error(&error))
    }

    fn or_raise_about(self, path: &FsPath) -> PyResult<T> {
        self.map_err(|error| os_error_about(&error, path))
    }

    fn or_raise_about_both(self, from: &FsPath, to: &FsPath) -> PyResult<T> {
        self.map_err(|error| {
            let text = error.problem().to_string();
            let no_winerror = None::<i32>;
            let (from, to) = (from.to_name(), to.to_name());
            PyOSError::new_err((error.errno(), text, from, no_winerror, to))
        })
    }
}

pub(crate) fn os_error(error: &larder::Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

pub(crate) fn os_error_about(error: &larder::Error, path: &FsPath) -> PyErr {
    PyOSError::new_err((error.errno(), error.problem().to_string(), path.to_name()))
}

/// A call on something that was closed.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}"))
}
