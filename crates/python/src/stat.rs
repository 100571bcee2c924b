//! Attributes.

use larder::{Metadata, Timestamp};
use pyo3::prelude::*;

use crate::filesystem::FileSystem;
use crate::path::FsPath;

const BILLION: i128 = 1_000_000_000;
/// `st_blocks` counts in these.
const BLOCK_BYTES: u64 = 512;

/// Attributes of a file, with the names of `os.stat_result`.
///
/// `st_dev` is the id of the subvolume: with `st_ino` it is unique in the file system.
#[pyclass(frozen, get_all, eq, module = "larder")]
#[derive(Clone, PartialEq)]
pub(crate) struct Stat {
    st_mode: u32,
    st_ino: u64,
    st_dev: u64,
    st_nlink: u32,
    st_uid: u32,
    st_gid: u32,
    st_size: u64,
    st_blocks: u64,
    st_blksize: u32,
    st_rdev: u64,
    st_atime_ns: i128,
    st_mtime_ns: i128,
    st_ctime_ns: i128,
    st_birthtime_ns: i128,
}

#[pymethods]
impl Stat {
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.st_atime_ns)
    }

    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.st_mtime_ns)
    }

    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.st_ctime_ns)
    }

    #[getter]
    fn st_birthtime(&self) -> f64 {
        seconds(self.st_birthtime_ns)
    }

    fn __repr__(&self) -> String {
        let Self { st_mode, st_ino, st_size, .. } = self;
        format!("<larder.Stat st_mode={st_mode:#o} st_ino={st_ino} st_size={st_size}>")
    }
}

impl Stat {
    pub(crate) fn new(metadata: &Metadata, sector_bytes: u32) -> Self {
        let bytes = metadata.allocated_bytes.saturating_add(metadata.dirty_bytes);
        Self {
            st_mode: metadata.mode,
            st_ino: metadata.inode,
            st_dev: metadata.subvolume,
            st_nlink: metadata.nlink,
            st_uid: metadata.uid,
            st_gid: metadata.gid,
            st_size: metadata.size_bytes,
            st_blocks: bytes / BLOCK_BYTES,
            st_blksize: sector_bytes,
            st_rdev: larder_platform::device_number(metadata.device.0, metadata.device.1),
            st_atime_ns: nanoseconds(metadata.atime),
            st_mtime_ns: nanoseconds(metadata.mtime),
            st_ctime_ns: nanoseconds(metadata.ctime),
            st_birthtime_ns: nanoseconds(metadata.otime),
        }
    }
}

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * BILLION + i128::from(time.nanoseconds)
}

/// Seconds since 1970.
pub(crate) fn seconds(nanoseconds: i128) -> f64 {
    nanoseconds as f64 / BILLION as f64
}

#[pymethods]
impl FileSystem {
    /// The attributes of what is at a path.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, path: FsPath, follow_symlinks: bool) -> PyResult<Stat> {
        let inode = self.inode(py, &path, follow_symlinks)?;
        Ok(Stat::new(&inode.metadata(), self.filesystem()?.sector_bytes()))
    }
}
