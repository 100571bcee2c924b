//! Creating, renaming and removing names, and attributes of what has them.

use larder::{RenameMode, SetAttributes, Timestamp};
use pyo3::prelude::*;

use crate::filesystem::FileSystem;
use crate::path::{FsPath, Name};

const BILLION: i64 = 1_000_000_000;

#[pymethods]
impl FileSystem {
    /// Creates an empty directory. No umask applies.
    #[pyo3(signature = (path, mode = 0o755))]
    fn mkdir(&self, py: Python<'_>, path: FsPath, mode: u32) -> PyResult<()> {
        self.at(py, &path, |root, path| root.create_directory(path, mode).map(drop))
    }

    /// Removes an empty directory, which may be a subvolume.
    fn rmdir(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at(py, &path, |root, path| root.remove_directory(path))
    }

    /// Removes a name that is not that of a directory.
    fn remove(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at(py, &path, |root, path| root.remove_file(path))
    }

    /// Removes a directory with all that is in it, subvolumes too, or anything else.
    fn rmtree(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at(py, &path, |root, path| root.remove_all(path))
    }

    /// Renames `src` to `dst`, and replaces what is there: a file, or an empty directory.
    #[pyo3(signature = (src, dst, *, replace = true, exchange = false))]
    fn rename(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        replace: bool,
        exchange: bool,
    ) -> PyResult<()> {
        let mode = match (exchange, replace) {
            (true, _) => RenameMode::Exchange,
            (false, true) => RenameMode::Replace,
            (false, false) => RenameMode::NoReplace,
        };
        self.at_both(py, (&src, &dst), |root| root.rename_with(&src, &dst, mode))
    }

    /// Creates a symbolic link at `dst` to `src`.
    fn symlink(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<()> {
        self.at_both(py, (&src, &dst), |root| root.symlink(&src, &dst).map(drop))
    }

    /// Gives the file `src` the further name `dst`.
    fn link(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<()> {
        self.at_both(py, (&src, &dst), |root| root.hard_link(&src, &dst))
    }

    /// Copies a file. The copy shares the data, and takes no time. Returns the length in bytes.
    fn copy(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<u64> {
        self.at_both(py, (&src, &dst), |root| root.copy(&src, &dst))
    }

    /// The target of a symbolic link.
    fn readlink(&self, py: Python<'_>, path: FsPath) -> PyResult<Name> {
        let target = self.at(py, &path, |root, path| root.read_link(path))?;
        Ok(Name(target.into_os_string()))
    }

    /// Changes permissions.
    #[pyo3(signature = (path, mode, *, follow_symlinks = true))]
    fn chmod(
        &self,
        py: Python<'_>,
        path: FsPath,
        mode: u32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let new = SetAttributes { permissions: Some(mode), ..SetAttributes::default() };
        self.at_inode(py, &path, follow_symlinks, |inode| inode.set_attributes(&new))
    }

    /// Changes owner and group; -1 leaves one as it is.
    #[pyo3(signature = (path, uid, gid, *, follow_symlinks = true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: FsPath,
        uid: i64,
        gid: i64,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let id = |id: i64| (id != -1).then(|| u32::try_from(id)).transpose();
        let new = SetAttributes { uid: id(uid)?, gid: id(gid)?, ..SetAttributes::default() };
        self.at_inode(py, &path, follow_symlinks, |inode| inode.set_attributes(&new))
    }

    /// Sets the times of access and modification, in nanoseconds since 1970.
    fn _utime(
        &self,
        py: Python<'_>,
        path: FsPath,
        atime_ns: i64,
        mtime_ns: i64,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (atime, mtime) = (Some(timestamp(atime_ns)), Some(timestamp(mtime_ns)));
        let new = SetAttributes { atime, mtime, ..SetAttributes::default() };
        self.at_inode(py, &path, follow_symlinks, |inode| inode.set_attributes(&new))
    }
}

fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp {
        seconds: nanoseconds.div_euclid(BILLION),
        nanoseconds: nanoseconds.rem_euclid(BILLION) as u32,
    }
}
