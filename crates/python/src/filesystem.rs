//! An open file system.

use std::time::Duration;

use larder::OpenOptions;
use larder::device::Place;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::options;
use crate::owned::Owned;
use crate::path::{FsPath, FsPaths, Name};

/// The subvolume whose root paths start at.
#[derive(FromPyObject)]
enum Start {
    Id(u64),
    Path(FsPath),
}

/// A file system, and the subvolume whose root its paths start at.
#[pyclass(frozen, subclass, module = "larder._larder")]
pub(crate) struct FileSystem {
    root: Owned<larder::Subvolume>,
    is_writable: bool,
}

impl FileSystem {
    /// The subvolume whose root paths start at.
    pub(crate) fn root(&self) -> PyResult<larder::Subvolume> {
        self.root.get()
    }

    pub(crate) fn filesystem(&self) -> PyResult<larder::Filesystem> {
        Ok(self.root()?.filesystem().clone())
    }

    /// Does something with `path` while other Python threads run.
    pub(crate) fn at<T: Send>(
        &self,
        py: Python<'_>,
        path: &FsPath,
        act: impl FnOnce(&larder::Subvolume, &FsPath) -> larder::Result<T> + Send,
    ) -> PyResult<T> {
        let root = self.root()?;
        py.detach(|| act(&root, path)).or_raise_about(path)
    }

    /// Does something with two paths while other Python threads run.
    pub(crate) fn at_both<T: Send>(
        &self,
        py: Python<'_>,
        (from, to): (&FsPath, &FsPath),
        act: impl FnOnce(&larder::Subvolume) -> larder::Result<T> + Send,
    ) -> PyResult<T> {
        let root = self.root()?;
        py.detach(|| act(&root)).or_raise_about_both(from, to)
    }

    /// The inode at `path`.
    pub(crate) fn inode(
        &self,
        py: Python<'_>,
        path: &FsPath,
        follow_symlinks: bool,
    ) -> PyResult<larder::Inode> {
        self.at(py, path, |root, path| find(root, path, follow_symlinks))
    }

    /// Does something with the inode at `path` while other Python threads run.
    pub(crate) fn at_inode<T: Send>(
        &self,
        py: Python<'_>,
        path: &FsPath,
        follow_symlinks: bool,
        act: impl FnOnce(&larder::Inode) -> larder::Result<T> + Send,
    ) -> PyResult<T> {
        self.at(py, path, |root, path| act(&find(root, path, follow_symlinks)?))
    }
}

fn find(
    root: &larder::Subvolume,
    path: &FsPath,
    follow_symlinks: bool,
) -> larder::Result<larder::Inode> {
    if follow_symlinks { root.resolve(path) } else { root.lookup(path) }
}

#[pymethods]
impl FileSystem {
    #[new]
    #[pyo3(signature = (
        paths, *, write = false, degraded = false, subvolume = None, partition = None,
        offset = None, cache_bytes = None, commit_interval = Some(30.0), discard = None,
        compression = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        py: Python<'_>,
        paths: FsPaths,
        write: bool,
        degraded: bool,
        subvolume: Option<Start>,
        partition: Option<u32>,
        offset: Option<u64>,
        cache_bytes: Option<usize>,
        commit_interval: Option<f64>,
        discard: Option<bool>,
        compression: Option<&str>,
    ) -> PyResult<Self> {
        let interval = commit_interval.map(Duration::try_from_secs_f64).transpose();
        let mut options = OpenOptions::new()
            .write(write)
            .degraded(degraded)
            .place(options::place(partition, offset, Place::Found)?)
            .commit_interval(interval.map_err(options::invalid)?)
            .compression(options::write_compression(compression)?);
        if let Some(discard) = discard {
            options = options.discard(discard);
        }
        if let Some(bytes) = cache_bytes {
            options = options.cache_bytes(bytes);
        }
        let paths = paths.into_vec();
        let first = paths.first().cloned();
        let first = first.ok_or_else(|| PyValueError::new_err("no path of an image or device"))?;
        let opened = py.detach(|| options.open(&paths)).or_raise_about(&first)?;
        let root = match subvolume {
            None => py.detach(|| opened.default_subvolume()).or_raise()?,
            Some(Start::Id(id)) => py.detach(|| opened.subvolume_by_id(id)).or_raise()?,
            Some(Start::Path(path)) => {
                py.detach(|| opened.subvolume(&path)).or_raise_about(&path)?
            }
        };
        Ok(Self { root: Owned::new("file system", root), is_writable: write })
    }

    /// Ends jobs, makes all changes durable and gives the image free. A second call does nothing.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        // The lock is free again before the commit begins: calls that come later fail at once.
        let Some(root) = self.root.take() else { return Ok(()) };
        let filesystem = root.filesystem();
        let close = || {
            filesystem.pause_balance()?;
            filesystem.jobs().end(|_| true);
            filesystem.sync()
        };
        py.detach(close).or_raise()
    }

    /// Whether it was closed, or opened by the process that this one was forked from.
    #[getter]
    fn closed(&self) -> bool {
        self.root.is_closed()
    }

    /// Whether it was opened by the process that this one was forked from.
    #[getter]
    fn _forked(&self) -> bool {
        self.root.is_forked()
    }

    /// Whether it was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.is_writable
    }

    /// Makes all changes durable, by a commit. Buffers of open files count only once they are
    /// flushed.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let filesystem = self.filesystem()?;
        py.detach(|| filesystem.sync()).or_raise()
    }

    /// Makes one file or directory durable: far less work than `sync`.
    fn fsync(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at_inode(py, &path, true, larder::Inode::sync)
    }

    /// The label; empty if there is none.
    #[getter]
    fn label(&self) -> PyResult<Name> {
        Ok(Name(self.filesystem()?.label()))
    }

    #[setter]
    fn set_label(&self, py: Python<'_>, label: FsPath) -> PyResult<()> {
        let filesystem = self.filesystem()?;
        py.detach(|| filesystem.set_label(&label)).or_raise()
    }

    /// The UUID, as text.
    #[getter]
    fn uuid(&self) -> PyResult<String> {
        Ok(self.filesystem()?.uuid().to_string())
    }

    /// The transaction of the last commit.
    #[getter]
    fn generation(&self) -> PyResult<u64> {
        Ok(self.filesystem()?.generation())
    }

    /// Whether a crash left changes that only opening for writing shows.
    #[getter]
    fn needs_log_replay(&self) -> PyResult<bool> {
        Ok(self.filesystem()?.needs_log_replay())
    }

    /// Total, used and available bytes.
    fn _disk_usage(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let filesystem = self.filesystem()?;
        let capacity = py.detach(|| filesystem.capacity()).or_raise()?;
        let used_bytes = capacity.total_bytes.saturating_sub(capacity.free_bytes);
        Ok((capacity.total_bytes, used_bytes, capacity.available_bytes))
    }
}
