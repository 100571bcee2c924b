//! Copies of trees from and to the host, and out of archives.

use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::Path;

use larder::copy::{Copied, CopyError, CopyOptions, Event, Keep};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::new;
use crate::filesystem::FileSystem;
use crate::interrupt::{Going, interruptibly};
use crate::path::{FsPath, Name};
use crate::stream::{BUFFER_BYTES, Stream};

fn raised(error: &CopyError) -> PyErr {
    let path = |path: &Path| FsPath::from(Name(path.into()));
    let (original, copy) = (path(error.original()), path(error.copy()));
    new(error.is_damage(), error.errno(), error.reason(), Some(&original), Some(&copy))
}

/// What Python callbacks of a copy do: it ends once one has raised an exception.
struct Callbacks<'g> {
    going: &'g Going,
    on_error: Option<Py<PyAny>>,
    raised: &'g Mutex<Option<PyErr>>,
}

impl Callbacks<'_> {
    fn on(&self, event: &Event<'_>) -> ControlFlow<()> {
        let Event::Failed(error) = event else { return self.going.on() };
        let Some(call) = &self.on_error else { return ControlFlow::Break(()) };
        match Python::attach(|py| call.call1(py, (raised(error),))) {
            Ok(_) => self.going.on(),
            Err(error) => {
                *self.raised.lock() = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// Copies while other Python threads run.
fn run(
    py: Python<'_>,
    preserve: bool,
    on_error: Option<Py<PyAny>>,
    copy: impl FnOnce(CopyOptions<'_>) -> Result<Copied, CopyError> + Send,
) -> PyResult<(u64, u64)> {
    let keep = if preserve { Keep::Everything } else { Keep::Permissions { umask: 0 } };
    let of_callback = Mutex::new(None);
    let copied = interruptibly(py, |going| {
        let callbacks = Callbacks { going, on_error, raised: &of_callback };
        copy(CopyOptions::new().keep(keep).observe(move |event| callbacks.on(&event)))
    })?;
    if let Some(error) = of_callback.into_inner() {
        return Err(error);
    }
    let copied = copied.map_err(|error| raised(&error))?;
    Ok((copied.inodes, copied.bytes))
}

#[pymethods]
impl FileSystem {
    /// Copies what is at `src` on this system to `dst`.
    fn _copy_in(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        preserve: bool,
        onerror: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let root = self.root()?;
        run(py, preserve, onerror, |options| options.copy_in(&src, &root, &dst))
    }

    /// Copies what is at `src` to `dst` on this system.
    fn _copy_out(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        preserve: bool,
        onerror: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let root = self.root()?;
        run(py, preserve, onerror, |options| options.copy_out(&root, &src, &dst))
    }

    /// Copies what is at `src` to `dst`, and shares the data.
    fn _copy_within(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        preserve: bool,
        onerror: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let root = self.root()?;
        run(py, preserve, onerror, |options| options.copy_within(&root, &src, &root, &dst))
    }

    /// Unpacks the tar archive that `archive` reads into the directory at `path`.
    fn _unpack(
        &self,
        py: Python<'_>,
        archive: Py<PyAny>,
        path: FsPath,
        preserve: bool,
        onerror: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let root = self.root()?;
        let mut stream = Stream::new(archive);
        let unpacked = run(py, preserve, onerror, |options| {
            let input = BufReader::with_capacity(BUFFER_BYTES, &mut stream);
            options.unpack(input, &root, &path)
        });
        match stream.raised {
            Some(error) => Err(error),
            None => unpacked,
        }
    }
}
