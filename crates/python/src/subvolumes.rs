//! Subvolumes and snapshots.

use larder::{SnapshotKind, SubvolumeInfo, Uuid};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::filesystem::FileSystem;
use crate::path::{FsPath, Name};
use crate::stat::{nanoseconds, seconds};

/// A subvolume as its root item describes it.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Subvolume {
    id: u64,
    path: Name,
    uuid: Option<String>,
    parent_uuid: Option<String>,
    received_uuid: Option<String>,
    generation: u64,
    is_read_only: bool,
    is_snapshot: bool,
    created: f64,
}

impl Subvolume {
    /// `path` begins at the top level.
    fn new(info: &SubvolumeInfo, path: Name) -> Self {
        let uuid = |uuid: Uuid| (!uuid.is_nil()).then(|| uuid.to_string());
        Self {
            id: info.id,
            path,
            uuid: uuid(info.uuid),
            parent_uuid: uuid(info.parent_uuid),
            received_uuid: uuid(info.received_uuid),
            generation: info.generation,
            is_read_only: info.is_read_only,
            is_snapshot: info.is_snapshot,
            created: seconds(nanoseconds(info.creation_time)),
        }
    }
}

#[pymethods]
impl Subvolume {
    fn __repr__(&self) -> String {
        format!("<larder.Subvolume {} {}>", self.id, self.path.0.display())
    }
}

/// The subvolume whose root is at `path`.
pub(crate) fn subvolume_at(
    root: &larder::Subvolume,
    path: &FsPath,
) -> larder::Result<larder::Subvolume> {
    root.resolve(path)?.into_subvolume()
}

/// The path of the subvolume `id` from the top level, with a slash before it.
fn path_of(filesystem: &larder::Filesystem, id: u64) -> larder::Result<Name> {
    let mut path = std::ffi::OsString::from("/");
    path.push(filesystem.subvolume_path(id)?);
    Ok(Name(path))
}

#[pymethods]
impl FileSystem {
    /// All subvolumes in the order of their ids, without the top level and those that are being
    /// deleted.
    fn subvolumes(&self, py: Python<'_>) -> PyResult<Vec<Subvolume>> {
        let filesystem = self.filesystem()?;
        let described =
            |info: SubvolumeInfo| Ok(Subvolume::new(&info, path_of(&filesystem, info.id)?));
        let list = || -> larder::Result<_> {
            let infos = filesystem.subvolumes();
            let named = infos.filter(|info| info.as_ref().map_or(true, |info| info.name.is_some()));
            named.map(|info| described(info?)).collect()
        };
        py.detach(list).or_raise()
    }

    /// The subvolume whose root is at a path.
    #[pyo3(signature = (path = FsPath::root()))]
    fn subvolume(&self, py: Python<'_>, path: FsPath) -> PyResult<Subvolume> {
        self.at(py, &path, |root, path| {
            let found = subvolume_at(root, path)?;
            let path = path_of(root.filesystem(), found.id())?;
            Ok(Subvolume::new(&found.info()?, path))
        })
    }

    /// Creates an empty subvolume. It is durable when this returns.
    fn create_subvolume(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at(py, &path, |root, path| root.create_subvolume(path).map(drop))
    }

    /// Takes a snapshot of the subvolume at `src`, named `dst`. It shares all data, and is durable
    /// when this returns.
    #[pyo3(signature = (src, dst, *, read_only = false))]
    fn snapshot(&self, py: Python<'_>, src: FsPath, dst: FsPath, read_only: bool) -> PyResult<()> {
        let kind = if read_only { SnapshotKind::ReadOnly } else { SnapshotKind::Writable };
        self.at_both(py, (&src, &dst), |root| {
            subvolume_at(root, &src)?.snapshot_to(root, &dst, kind).map(drop)
        })
    }

    /// Deletes a subvolume with all that is in it.
    fn delete_subvolume(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at(py, &path, |root, path| root.delete_subvolume(path))
    }

    /// Makes a subvolume read-only, or not.
    fn set_read_only(&self, py: Python<'_>, path: FsPath, read_only: bool) -> PyResult<()> {
        self.at(py, &path, |root, path| subvolume_at(root, path)?.set_read_only(read_only))
    }

    /// Makes the subvolume at a path the one that mounts show, and whose root paths start at.
    fn set_default_subvolume(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.at(py, &path, |root, path| {
            root.filesystem().set_default_subvolume(subvolume_at(root, path)?.id())
        })
    }
}
