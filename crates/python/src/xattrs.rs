//! Extended attributes.

use larder::XattrMode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::filesystem::FileSystem;
use crate::path::{FsPath, Name};

/// The flags of Linux, on every system.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

#[pymethods]
impl FileSystem {
    /// The value of an extended attribute, as `os.getxattr`.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        attribute: FsPath,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.at_inode(py, &path, follow_symlinks, |inode| inode.xattr(&attribute))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets an extended attribute, as `os.setxattr`: `flags` may be `os.XATTR_CREATE` or
    /// `os.XATTR_REPLACE`.
    #[pyo3(signature = (path, attribute, value, flags = 0, *, follow_symlinks = true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: FsPath,
        attribute: FsPath,
        value: Vec<u8>,
        flags: i32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(PyValueError::new_err("flags: XATTR_CREATE or XATTR_REPLACE")),
        };
        self.at_inode(py, &path, follow_symlinks, |inode| inode.set_xattr(&attribute, &value, mode))
    }

    /// Removes an extended attribute, as `os.removexattr`.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: FsPath,
        attribute: FsPath,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.at_inode(py, &path, follow_symlinks, |inode| inode.remove_xattr(&attribute))
    }

    /// The names of the extended attributes, as `os.listxattr`.
    #[pyo3(signature = (path = FsPath::root(), *, follow_symlinks = true))]
    fn listxattr(
        &self,
        py: Python<'_>,
        path: FsPath,
        follow_symlinks: bool,
    ) -> PyResult<Vec<Name>> {
        self.at_inode(py, &path, follow_symlinks, |inode| {
            inode.xattrs().map(|xattr| Ok(Name(xattr?.name))).collect()
        })
    }
}
