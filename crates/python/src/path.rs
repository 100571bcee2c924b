//! Paths, as callers give them and as they get them.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use larder_platform::OsStrExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// A path from a `str`, `bytes` or `os.PathLike`. In a `str`, surrogate escapes stand for bytes
/// that are not UTF-8, as in `os.fsencode`.
#[derive(Clone)]
pub(crate) struct FsPath(PathBuf);

/// One path or several.
#[derive(FromPyObject)]
pub(crate) enum FsPaths {
    One(FsPath),
    Several(Vec<FsPath>),
}

/// A name or path for Python: a `str`, as from `os.fsdecode`.
pub(crate) struct Name(pub(crate) OsString);

impl FsPath {
    /// Where all paths start.
    pub(crate) fn root() -> Self {
        Self("/".into())
    }

    /// Text that is itself, for an exception.
    pub(crate) fn to_name(&self) -> Name {
        Name(self.0.as_os_str().to_owned())
    }
}

impl From<Name> for FsPath {
    fn from(name: Name) -> Self {
        Self(name.0.into())
    }
}

impl Name {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(OsStr::from_bytes(bytes).to_owned())
    }
}

impl From<FsPath> for PathBuf {
    fn from(path: FsPath) -> Self {
        path.0
    }
}

impl AsRef<Path> for FsPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for FsPath {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl<'py> FromPyObject<'_, 'py> for FsPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let plain = py.import(intern!(py, "os"))?.call_method1(intern!(py, "fspath"), (object,))?;
        let path = match plain.cast::<PyBytes>() {
            Ok(bytes) => OsStr::from_bytes(bytes.as_bytes()).to_owned(),
            Err(_) => plain.extract::<OsString>()?,
        };
        Ok(Self(path.into()))
    }
}

impl FsPaths {
    pub(crate) fn into_vec(self) -> Vec<FsPath> {
        match self {
            Self::One(path) => vec![path],
            Self::Several(paths) => paths,
        }
    }
}

impl<'py> IntoPyObject<'py> for Name {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        self.0.into_pyobject(py)
    }
}

impl<'py> IntoPyObject<'py> for &Name {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        self.0.as_os_str().into_pyobject(py)
    }
}
