//! Where data is, and what it takes.

use larder::accounting::DataUse;
use larder::{CompressionAlgorithm, ExtentKind, Profile, Space as Spaces, SpaceKind, UsedExtent};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::filesystem::FileSystem;
use crate::interrupt::interruptibly;
use crate::path::FsPath;

/// An extent of a file: a range of it that is stored as a whole.
///
/// `offset` and `length` are those in the file, in bytes. `kind` is "data", "inline" (in the tree),
/// "preallocated" (reads as zeros) or "delayed" (in memory only). `address` is the logical address of
/// the data, that of the whole extent if it is compressed, and `disk_length` how many bytes the whole
/// extent takes, of which this may be a part. `compression` is "zlib", "lzo", "zstd" or None.
/// `shared` says whether another file uses some of the same data.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Extent {
    offset: u64,
    length: u64,
    kind: &'static str,
    address: Option<u64>,
    disk_length: u64,
    compression: Option<&'static str>,
    shared: bool,
}

impl From<UsedExtent> for Extent {
    fn from(UsedExtent { extent, is_shared }: UsedExtent) -> Self {
        Self {
            offset: extent.offset,
            length: extent.len_bytes,
            kind: match extent.kind {
                ExtentKind::Hole => "hole",
                ExtentKind::Inline => "inline",
                ExtentKind::Preallocated => "preallocated",
                ExtentKind::Data => "data",
                ExtentKind::Delayed => "delayed",
            },
            address: extent.logical,
            disk_length: extent.disk_bytes,
            compression: extent.compression.map(CompressionAlgorithm::name),
            shared: is_shared,
        }
    }
}

#[pymethods]
impl Extent {
    fn __repr__(&self) -> String {
        let Self { offset, length, kind, .. } = self;
        format!("<larder.Extent {kind} at {offset}, {length} bytes>")
    }
}

/// The block groups of one purpose and profile together, in bytes.
///
/// `kind` is "data", "metadata", "system" or "mixed", `profile` a name that mkfs takes, or None for
/// an invalid one. `total` is what they can hold, `used` what of that is used, and `raw` what they
/// take on all devices.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Space {
    kind: &'static str,
    profile: Option<&'static str>,
    total: u64,
    used: u64,
    raw: u64,
}

impl From<Spaces> for Space {
    fn from(space: Spaces) -> Self {
        Self {
            kind: match space.kind {
                SpaceKind::Data => "data",
                SpaceKind::System => "system",
                SpaceKind::Metadata => "metadata",
                SpaceKind::DataAndMetadata => "mixed",
            },
            profile: space.profile.map(Profile::name),
            total: space.total_bytes,
            used: space.used_bytes,
            raw: space.raw_bytes,
        }
    }
}

#[pymethods]
impl Space {
    fn __repr__(&self) -> String {
        let Self { kind, total, used, .. } = self;
        format!("<larder.Space {kind}: {used} of {total} bytes>")
    }
}

#[pymethods]
impl FileSystem {
    /// The extents of a file, in order, without the holes between them. In a file system that is open
    /// for writing this commits first.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn extents(
        &self,
        py: Python<'_>,
        path: FsPath,
        follow_symlinks: bool,
    ) -> PyResult<Vec<Extent>> {
        self.at_inode(py, &path, follow_symlinks, |inode| {
            let file = inode.clone().into_file()?;
            inode.subvolume().filesystem().sync()?;
            UsedExtent::all_from(&file, 0)?.map(|used| Ok(Extent::from(used?))).collect()
        })
    }

    /// The space of the file system by purpose and profile.
    fn space_usage(&self, py: Python<'_>) -> PyResult<Vec<Space>> {
        let filesystem = self.filesystem()?;
        let spaces = py.detach(|| filesystem.space()).or_raise()?;
        Ok(spaces.into_iter().map(Space::from).collect())
    }

    /// Bytes of data of a file, or of all files below a directory.
    fn _data_use(&self, py: Python<'_>, path: FsPath) -> PyResult<(u64, u64, u64)> {
        let inode = self.inode(py, &path, true)?;
        let found = interruptibly(py, |going| {
            inode.subvolume().filesystem().sync()?;
            DataUse::of(&inode, &mut || going.on())
        })?;
        let DataUse { total_bytes, exclusive_bytes, shared_bytes } = found.or_raise_about(&path)?;
        Ok((total_bytes, exclusive_bytes, shared_bytes))
    }
}
