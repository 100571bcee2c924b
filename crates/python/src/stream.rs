//! Snapshots as streams, written to and read from Python objects.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::ControlFlow;

use larder::{
    ReceiveEvent, ReceiveOptions, ReceiveSnapshots, SendError, SendOptions, SendSnapshot,
    StreamVersion,
};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::new;
use crate::filesystem::FileSystem;
use crate::path::{FsPath, Name};
use crate::subvolumes::subvolume_at;

pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// A Python object as a stream. It looks at signals, so that Ctrl-C ends what reads or writes it.
pub(crate) struct Stream {
    object: Py<PyAny>,
    /// What the object raised.
    pub(crate) raised: Option<PyErr>,
}

impl Stream {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self { object, raised: None }
    }

    fn call<T>(&mut self, act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let failed = || io::Error::other("the Python object has raised an exception");
        if self.raised.is_some() {
            // The buffer above makes another attempt when it is dropped.
            return Err(failed());
        }
        let called = Python::attach(|py| {
            py.check_signals()?;
            act(self.object.bind(py))
        });
        called.map_err(|error| {
            self.raised = Some(error);
            failed()
        })
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.call(|object| {
            let py = object.py();
            let read = object.call_method1(intern!(py, "read"), (buf.len(),))?;
            let data: &[u8] = read.cast::<PyBytes>()?.as_bytes();
            let place = buf.get_mut(..data.len());
            let too_long = || PyValueError::new_err("read() returned more than it was asked for");
            place.ok_or_else(too_long)?.copy_from_slice(data);
            Ok(data.len())
        })
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.call(|object| {
            let py = object.py();
            let written = object.call_method1(intern!(py, "write"), (PyBytes::new(py, data),))?;
            // Objects that are no streams often return nothing.
            let len = if written.is_none() { data.len() } else { written.extract()? };
            let too_long = || PyValueError::new_err("write() returned more than it was given");
            if len <= data.len() { Ok(len) } else { Err(too_long()) }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[pymethods]
impl FileSystem {
    /// Writes a read-only snapshot as a stream to `output`, whole or as the difference from
    /// `parent`. Returns the length of the stream in bytes.
    #[pyo3(signature = (
        path, output, *, parent = None, clone_sources = Vec::new(), version = 1,
        compressed_data = false, no_data = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn send(
        &self,
        py: Python<'_>,
        path: FsPath,
        output: Py<PyAny>,
        parent: Option<FsPath>,
        clone_sources: Vec<FsPath>,
        version: u32,
        compressed_data: bool,
        no_data: bool,
    ) -> PyResult<u64> {
        let version = StreamVersion::from_number(version)
            .ok_or_else(|| PyValueError::new_err(format!("there is no version {version}")))?;
        let subvolume = |path: &FsPath| self.at(py, path, subvolume_at);
        let snapshot = subvolume(&path)?;
        let options = SendOptions {
            version,
            parent: parent.as_ref().map(&subvolume).transpose()?,
            clone_sources: clone_sources.iter().map(&subvolume).collect::<PyResult<_>>()?,
            compressed_data,
            no_data,
            ..SendOptions::default()
        };
        let mut stream = Stream::new(output);
        let sent = py.detach(|| {
            let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, &mut stream);
            let sent = snapshot.send(&options, &mut buffered)?;
            buffered.flush().map_err(SendError::Output)?;
            Ok(sent)
        });
        sent.map(|sent| sent.stream_bytes).map_err(|error: SendError| {
            stream.raised.unwrap_or_else(|| {
                new(error.is_damage(), error.errno(), error.to_string(), Some(&path), None)
            })
        })
    }

    /// Makes the snapshots of the streams in `input`, in the directory at `path`. Returns their
    /// names. Each is durable and read-only; after an error, the unfinished one stays as it is.
    #[pyo3(signature = (input, path = FsPath::root(), *, force_decompress = false))]
    fn receive(
        &self,
        py: Python<'_>,
        input: Py<PyAny>,
        path: FsPath,
        force_decompress: bool,
    ) -> PyResult<Vec<Name>> {
        let directory = self.at(py, &path, |root, path| root.open_directory(path))?;
        let options = ReceiveOptions { force_decompress, ..ReceiveOptions::default() };
        let mut stream = Stream::new(input);
        let mut names = Vec::new();
        let mut observe = |event: ReceiveEvent<'_>| {
            if let ReceiveEvent::Begins { name, .. } = event {
                names.push(Name::from_bytes(name));
            }
            ControlFlow::Continue(())
        };
        let received = py.detach(|| {
            let input = BufReader::with_capacity(BUFFER_BYTES, &mut stream);
            directory.receive(input, &options, &mut observe)
        });
        received.map(|_| names).map_err(|error| {
            stream
                .raised
                .unwrap_or_else(|| new(false, error.errno(), error.to_string(), Some(&path), None))
        })
    }
}
