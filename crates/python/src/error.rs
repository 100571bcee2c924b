//! Failures as exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::path::FsPath;

create_exception!(
    larder,
    DamageError,
    PyOSError,
    "What is on a device is wrong, or cannot be read: larder.check says more."
);

/// Makes exceptions of the library's errors. Python selects the subclass of `OSError` by the
/// number; damage has one of its own.
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
            new(error.is_damage(), error.errno(), text, Some(from), Some(to))
        })
    }
}

pub(crate) fn os_error(error: &larder::Error) -> PyErr {
    new(error.is_damage(), error.errno(), error.to_string(), None, None)
}

pub(crate) fn os_error_about(error: &larder::Error, path: &FsPath) -> PyErr {
    let text = error.problem().to_string();
    new(error.is_damage(), error.errno(), text, Some(path), None)
}

/// An `OSError` with this number and text, `filename` and `filename2`.
pub(crate) fn new(
    is_damage: bool,
    errno: i32,
    text: String,
    path: Option<&FsPath>,
    other: Option<&FsPath>,
) -> PyErr {
    let no_winerror = None::<i32>;
    let name = |path: Option<&FsPath>| path.map(FsPath::to_name);
    let arguments = (errno, text, name(path), no_winerror, name(other));
    if is_damage { DamageError::new_err(arguments) } else { PyOSError::new_err(arguments) }
}

/// A call on something that was closed.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}"))
}
