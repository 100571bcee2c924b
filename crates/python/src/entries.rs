//! Listing directories.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::Path;

use larder::{Directory, FileType, Listed, ListedEntry, ListedInode, Metadata};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::{OrRaise, os_error_about};
use crate::filesystem::FileSystem;
use crate::path::{FsPath, Name};
use crate::stat::Stat;

/// The entries that are listed at a time.
const AT_A_TIME: usize = 512;

/// What was listed, without a handle.
struct EntryFacts {
    name: Name,
    inode_number: u64,
    file_type: FileType,
    attributes: larder::Result<Metadata>,
}

impl From<ListedEntry> for EntryFacts {
    fn from(ListedEntry { entry, found }: ListedEntry) -> Self {
        Self {
            name: Name(entry.name().to_owned()),
            inode_number: entry.inode_number(),
            file_type: entry.file_type(),
            attributes: found.map(|found| match found {
                ListedInode::Open(inode) => inode.metadata(),
                ListedInode::Attributes(metadata) => metadata,
            }),
        }
    }
}

/// An entry of a directory, with the attributes that its inode had when it was listed.
#[pyclass(frozen, module = "larder")]
pub(crate) struct DirEntry {
    filesystem: Py<FileSystem>,
    directory: FsPath,
    found: EntryFacts,
    sector_bytes: u32,
}

/// The entries of a directory, in the order in which they were made.
#[pyclass(frozen, module = "larder")]
pub(crate) struct ScanDir {
    filesystem: Py<FileSystem>,
    path: FsPath,
    /// The directory's subvolume and number: a handle would keep the image open.
    id: (u64, u64),
    sector_bytes: u32,
    rest: Mutex<Rest>,
}

/// What is left to list.
struct Rest {
    ready: VecDeque<larder::Result<EntryFacts>>,
    /// The index of what is not ready.
    next: Option<u64>,
}

impl From<Listed> for Rest {
    fn from(listed: Listed) -> Self {
        let entries = listed.entries.into_iter();
        Self {
            ready: entries.map(|entry| entry.map(EntryFacts::from)).collect(),
            next: listed.next,
        }
    }
}

impl ScanDir {
    /// The next entry. An error stands for one that cannot be read; others may follow.
    fn advance(&self, filesystem: &larder::Filesystem) -> larder::Result<Option<EntryFacts>> {
        let mut rest = self.rest.lock();
        while rest.ready.is_empty()
            && let Some(index) = rest.next.take()
        {
            let (subvolume, number) = self.id;
            let inode = filesystem.subvolume_by_id(subvolume)?.inode(number)?;
            *rest = inode.into_directory()?.list_with_inodes(index, AT_A_TIME)?.into();
        }
        rest.ready.pop_front().transpose()
    }
}

#[pymethods]
impl ScanDir {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<DirEntry>> {
        let filesystem = self.filesystem.get().filesystem()?;
        let found = py.detach(|| self.advance(&filesystem)).or_raise_about(&self.path)?;
        Ok(found.map(|found| DirEntry {
            filesystem: self.filesystem.clone_ref(py),
            directory: self.path.clone(),
            found,
            sector_bytes: self.sector_bytes,
        }))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyAny>) {
        self.close();
    }

    /// Ends the listing.
    fn close(&self) {
        *self.rest.lock() = Rest { ready: VecDeque::new(), next: None };
    }
}

impl DirEntry {
    fn path_in(&self) -> Name {
        let path: &Path = self.directory.as_ref();
        Name(path.join(&self.found.name.0).into_os_string())
    }

    /// Whether it is of this type; a link that leads nowhere is of none.
    fn is(&self, py: Python<'_>, file_type: FileType, follow_symlinks: bool) -> PyResult<bool> {
        if self.found.file_type != FileType::Symlink || !follow_symlinks {
            return Ok(self.found.file_type == file_type);
        }
        let root = self.filesystem.get().root()?;
        let path = self.path_in();
        let inode = py.detach(|| root.resolve(&path.0));
        Ok(inode.is_ok_and(|inode| inode.file_type() == file_type))
    }
}

#[pymethods]
impl DirEntry {
    /// The name.
    #[getter]
    fn name(&self) -> &Name {
        &self.found.name
    }

    /// The path that was listed, and the name.
    #[getter]
    fn path(&self) -> Name {
        self.path_in()
    }

    fn __fspath__(&self) -> Name {
        self.path_in()
    }

    /// The number of its inode.
    fn inode(&self) -> u64 {
        self.found.inode_number
    }

    /// Whether it is a directory.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Directory, follow_symlinks)
    }

    /// Whether it is a regular file.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Regular, follow_symlinks)
    }

    /// Whether it is a symbolic link.
    fn is_symlink(&self) -> bool {
        self.found.file_type == FileType::Symlink
    }

    /// Its attributes. Those of a link are looked up now, others are as they were listed.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Stat> {
        let path = FsPath::from(self.path_in());
        if follow_symlinks && self.is_symlink() {
            let inode = self.filesystem.get().inode(py, &path, true)?;
            return Ok(Stat::new(&inode.metadata(), self.sector_bytes));
        }
        match &self.found.attributes {
            Ok(metadata) => Ok(Stat::new(metadata, self.sector_bytes)),
            Err(error) => Err(os_error_about(error, &path)),
        }
    }

    fn __repr__(&self) -> String {
        format!("<larder.DirEntry {}>", self.found.name.0.display())
    }
}

#[pymethods]
impl FileSystem {
    /// Iterates over the entries of a directory.
    #[pyo3(signature = (path = FsPath::root()))]
    fn scandir(this: &Bound<'_, Self>, path: FsPath) -> PyResult<ScanDir> {
        let (py, filesystem) = (this.py(), this.get());
        let listed = |directory: Directory| {
            let id = (directory.subvolume_id(), directory.number());
            Ok((id, directory.list_with_inodes(0, AT_A_TIME)?))
        };
        let (id, listed) =
            filesystem.at(py, &path, |root, path| root.open_directory(path).and_then(listed))?;
        Ok(ScanDir {
            filesystem: this.clone().unbind(),
            path,
            id,
            sector_bytes: filesystem.filesystem()?.sector_bytes(),
            rest: Mutex::new(listed.into()),
        })
    }

    /// The names in a directory, in the order in which they were made.
    #[pyo3(signature = (path = FsPath::root()))]
    fn listdir(&self, py: Python<'_>, path: FsPath) -> PyResult<Vec<Name>> {
        self.at(py, &path, |root, path| {
            let name = |name: &OsStr| Name(name.to_owned());
            root.open_directory(path)?.entries()?.map(|entry| Ok(name(entry?.name()))).collect()
        })
    }
}
