//! The devices of a file system.

use larder::mkfs::Claimed;
use larder::{DeviceInfo, ReplaceState, Replacement};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{self, OrRaise};
use crate::filesystem::FileSystem;
use crate::jobs::watched;
use crate::path::FsPath;

/// A device of a file system.
///
/// `path` is None if it is missing. `total` are the bytes of it that the file system may use, and
/// `allocated` those that belong to block groups.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Device {
    id: u64,
    uuid: String,
    path: Option<String>,
    total: u64,
    allocated: u64,
}

impl From<DeviceInfo> for Device {
    fn from(device: DeviceInfo) -> Self {
        Self {
            id: device.id,
            uuid: device.uuid.to_string(),
            path: device.name,
            total: device.total_bytes,
            allocated: device.allocated_bytes,
        }
    }
}

#[pymethods]
impl Device {
    fn __repr__(&self) -> String {
        let Self { id, total, .. } = self;
        let path = self.path.as_deref().unwrap_or("missing");
        format!("<larder.Device {id}: {path}, {total} bytes>")
    }
}

/// What was moved, in bytes.
///
/// `copied` is all of it. Of that no device had `damaged` right, and `unreadable` could not be read:
/// both are as bad as before, and `larder.check` names the files.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Moved {
    copied: u64,
    damaged: u64,
    unreadable: u64,
}

impl From<larder::Moved> for Moved {
    fn from(moved: larder::Moved) -> Self {
        Self {
            copied: moved.copied_bytes,
            damaged: moved.damaged_bytes,
            unreadable: moved.unreadable_bytes,
        }
    }
}

#[pymethods]
impl Moved {
    fn __repr__(&self) -> String {
        let Self { copied, damaged, unreadable } = self;
        format!("<larder.Moved {copied} bytes, {damaged} damaged, {unreadable} unreadable>")
    }
}

/// The new size of a device.
#[derive(FromPyObject)]
enum NewSize {
    Bytes(u64),
    Word(String),
}

/// Takes a device; a new file is made with `size`.
fn claim(
    py: Python<'_>,
    path: &FsPath,
    size: Option<u64>,
    force: bool,
    discard: bool,
) -> PyResult<Claimed> {
    py.detach(|| Claimed::open(path.as_ref(), size, force, discard)).map_err(|problem| {
        error::new(false, problem.errno(), problem.to_string(), Some(path), None)
    })
}

#[pymethods]
impl FileSystem {
    /// The devices, in the order of their ids.
    fn devices(&self) -> PyResult<Vec<Device>> {
        Ok(self.filesystem()?.devices().into_iter().map(Device::from).collect())
    }

    /// Adds a device, or a new image file of `size` bytes, and returns its id. What it has is lost.
    #[pyo3(signature = (path, *, size = None, force = false, discard = true))]
    fn add_device(
        &self,
        py: Python<'_>,
        path: FsPath,
        size: Option<u64>,
        force: bool,
        discard: bool,
    ) -> PyResult<u64> {
        let filesystem = self.filesystem()?;
        let claimed = claim(py, &path, size, force, discard)?;
        let id = py.detach(|| filesystem.add_device(claimed.device().clone()));
        let id = id.or_raise_about(&path)?;
        claimed.keep();
        Ok(id)
    }

    /// Moves everything on a device to the others, and removes it; also one that is missing.
    #[pyo3(signature = (id, *, progress = None))]
    fn remove_device(
        &self,
        py: Python<'_>,
        id: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Moved> {
        let filesystem = self.filesystem()?;
        let work = || filesystem.remove_device(id, &|_| ());
        watched(py, &filesystem, progress, work).map(Moved::from)
    }

    /// Sets how many bytes of a device the file system uses; "max" is all of it, and "min" as little
    /// as possible. The image file keeps its length: `devices` says to what it can be cut after.
    #[pyo3(signature = (id, size, *, progress = None))]
    fn resize_device(
        &self,
        py: Python<'_>,
        id: u64,
        size: NewSize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Moved> {
        let filesystem = self.filesystem()?;
        let bytes = match size {
            NewSize::Bytes(bytes) => Some(bytes),
            NewSize::Word(word) if word == "min" => None,
            NewSize::Word(word) if word == "max" => {
                let room = filesystem.device_room(id);
                Some(room.ok_or_else(|| PyValueError::new_err(format!("no device {id}")))?)
            }
            NewSize::Word(word) => {
                let reason = format!("{word:?} is neither a number of bytes, nor 'min' or 'max'");
                return Err(PyValueError::new_err(reason));
            }
        };
        let work = || match bytes {
            Some(bytes) => filesystem.resize_device(id, bytes, &|_| ()),
            None => filesystem.minimize_device(id, &|_| ()).map(|(_, moved)| moved),
        };
        watched(py, &filesystem, progress, work).map(Moved::from)
    }

    /// Copies everything on a device to another, or to a new image file of `size` bytes, which takes
    /// its place. With `avoid_source` the device is read only where no other copy is good. One that is
    /// interrupted can be resumed.
    #[pyo3(signature = (
        id, path, *, size = None, force = false, discard = true, avoid_source = false,
        progress = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn replace_device(
        &self,
        py: Python<'_>,
        id: u64,
        path: FsPath,
        size: Option<u64>,
        force: bool,
        discard: bool,
        avoid_source: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Moved> {
        let filesystem = self.filesystem()?;
        let claimed = claim(py, &path, size, force, discard)?;
        let target = claimed.device().clone();
        let wanted = Replacement { devid: id, target, avoid_source };
        let work = || filesystem.replace_device(&wanted, &|_| ());
        let moved = watched(py, &filesystem, progress, work);
        // One that was interrupted can go on with its target.
        let state = py.detach(|| filesystem.replace_status()).or_raise()?.state;
        if moved.is_ok() || state == ReplaceState::Suspended {
            claimed.keep();
        }
        moved.map(Moved::from)
    }

    /// Goes on with a replace that was interrupted. The target is one of the devices that were
    /// opened.
    #[pyo3(signature = (*, progress = None))]
    fn resume_replace(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Moved> {
        let filesystem = self.filesystem()?;
        watched(py, &filesystem, progress, || filesystem.resume_replace(&|_| ())).map(Moved::from)
    }

    /// Gives up a replace that goes on or was interrupted. Returns whether there was one.
    fn cancel_replace(&self, py: Python<'_>) -> PyResult<bool> {
        let filesystem = self.filesystem()?;
        py.detach(|| filesystem.cancel_replace()).or_raise()
    }
}
