//! Open files, below Python's streams.

use larder::OpenFile;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::OrRaise;
use crate::filesystem::FileSystem;
use crate::owned::Owned;
use crate::path::FsPath;
use crate::stat::Stat;

/// The most that is read before signals are looked at.
const PIECE_BYTES: usize = 16 << 20;

/// A regular file, read and written at offsets in bytes.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct File {
    path: FsPath,
    open: Owned<Handle>,
}

/// A file, also for writing if it was opened for that.
#[derive(Clone)]
struct Handle {
    file: larder::File,
    writer: Option<OpenFile>,
}

impl Handle {
    /// `flags` are those of open(2), as far as they concern writing.
    fn open_for_writing(
        root: &larder::Subvolume,
        path: &FsPath,
        flags: i32,
        permissions: u32,
    ) -> larder::Result<Self> {
        let has = |flag| flags & flag != 0;
        let file = match (has(libc::O_CREAT), has(libc::O_EXCL)) {
            (true, true) => root.create(path, permissions),
            (true, false) => root.open_or_create(path, permissions),
            (false, _) => root.open_file(path),
        }?;
        let writer = file.open_for_writing(has(libc::O_APPEND))?;
        if has(libc::O_TRUNC) {
            writer.set_len(0)?;
        }
        Ok(Self { file, writer: Some(writer) })
    }

    fn writer(&self) -> larder::Result<&OpenFile> {
        self.writer.as_ref().ok_or(larder::Error::NotWritable)
    }
}

impl File {
    /// Does something with the file while other Python threads run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Handle) -> larder::Result<T> + Send,
    ) -> PyResult<T> {
        let handle = self.open.get()?;
        py.detach(|| act(&handle)).or_raise_about(&self.path)
    }
}

#[pymethods]
impl File {
    /// Reads up to `size` bytes from `offset` on, fewer only at the end.
    fn read<'py>(&self, py: Python<'py>, size: u64, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let len = self.with(py, |handle| Ok(handle.file.len_bytes()))?;
        let size = usize::try_from(len.saturating_sub(offset).min(size))?;
        let mut filled = 0;
        let data = PyBytes::new_with(py, size, |data| {
            for piece in data.chunks_mut(PIECE_BYTES) {
                py.check_signals()?;
                let at = offset + filled as u64;
                let len = self.with(py, |handle| handle.file.read_at(piece, at))?;
                filled += len;
                if len < piece.len() {
                    break;
                }
            }
            Ok(())
        })?;
        if filled == size {
            return Ok(data);
        }
        // Another thread has cut the file meanwhile.
        Ok(PyBytes::new(py, &data.as_bytes()[..filled]))
    }

    /// Writes all of `data` at `offset`; without one, at the end. Returns where it begins.
    fn write(&self, py: Python<'_>, data: PyBuffer<u8>, offset: Option<u64>) -> PyResult<u64> {
        let data = data.to_vec(py)?;
        self.with(py, |handle| match offset {
            Some(offset) => handle.writer()?.write_at(&data, offset).map(|()| offset),
            None => handle.writer()?.append(&data),
        })
    }

    /// Makes the file `size` bytes long.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.with(py, |handle| handle.writer()?.set_len(size))
    }

    /// Size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |handle| Ok(handle.file.len_bytes()))
    }

    /// The attributes.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.with(py, |handle| {
            let sector_bytes = handle.file.subvolume().filesystem().sector_bytes();
            Ok(Stat::new(&handle.file.metadata(), sector_bytes))
        })
    }

    /// Makes the file durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |handle| handle.file.sync())
    }

    /// Closes it. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        let handle = self.open.take();
        py.detach(|| drop(handle));
    }
}

#[pymethods]
impl FileSystem {
    /// Opens a file for reading.
    fn _open_for_reading(&self, py: Python<'_>, path: FsPath) -> PyResult<File> {
        let file = self.at(py, &path, |root, path| root.open_file(path))?;
        Ok(File { path, open: Owned::new("file", Handle { file, writer: None }) })
    }

    /// Opens a file for writing, and for reading, with the flags of `os.open`.
    fn _open_for_writing(
        &self,
        py: Python<'_>,
        path: FsPath,
        flags: i32,
        permissions: u32,
    ) -> PyResult<File> {
        let open = |root: &_, path: &_| Handle::open_for_writing(root, path, flags, permissions);
        let handle = self.at(py, &path, open)?;
        Ok(File { path, open: Owned::new("file", handle) })
    }
}
