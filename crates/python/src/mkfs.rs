//! Making file systems.

use std::path::PathBuf;

use larder::device::Place;
use larder::mkfs::{MkfsError, MkfsOptions, Progress, Summary, parse_checksum, parse_profile};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::interrupt::interruptibly;
use crate::options::{self, invalid};
use crate::path::{FsPath, FsPaths};

/// What was made.
#[pyclass(frozen, module = "larder")]
pub(crate) struct MkfsSummary {
    #[pyo3(get)]
    label: String,
    #[pyo3(get)]
    uuid: String,
    /// The sum of the sizes of the devices.
    #[pyo3(get)]
    total_bytes: u64,
    /// Bytes that extents use.
    #[pyo3(get)]
    used_bytes: u64,
    text: String,
}

impl From<Summary> for MkfsSummary {
    fn from(summary: Summary) -> Self {
        Self {
            text: summary.to_string(),
            uuid: summary.uuid.to_string(),
            total_bytes: summary.total_bytes,
            used_bytes: summary.used_bytes,
            label: summary.label,
        }
    }
}

#[pymethods]
impl MkfsSummary {
    /// The output of mkfs.btrfs.
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<larder.MkfsSummary {}>", self.uuid)
    }
}

/// Makes a file system on image files and block devices, empty or filled from a directory. An image
/// that is not there is created, `size` bytes long.
#[pyfunction]
#[pyo3(signature = (
    paths, *, size = None, label = "", force = false, root_dir = None, shrink = false,
    subvolumes = Vec::new(), data_profile = None, metadata_profile = None, mixed = false,
    checksum = "crc32c", node_size = None, sector_size = 4096, features = "", uuid = None,
    compression = None, partition = None, offset = None, discard = true,
))]
#[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
#[expect(clippy::fn_params_excessive_bools, reason = "each has a name in Python")]
pub(crate) fn mkfs(
    py: Python<'_>,
    paths: FsPaths,
    size: Option<u64>,
    label: &str,
    force: bool,
    root_dir: Option<FsPath>,
    shrink: bool,
    subvolumes: Vec<String>,
    data_profile: Option<&str>,
    metadata_profile: Option<&str>,
    mixed: bool,
    checksum: &str,
    node_size: Option<u32>,
    sector_size: u32,
    features: &str,
    uuid: Option<&str>,
    compression: Option<&str>,
    partition: Option<u32>,
    offset: Option<u64>,
    discard: bool,
) -> PyResult<MkfsSummary> {
    let profile = |name: Option<&str>| name.map(parse_profile).transpose().map_err(invalid);
    let specs = subvolumes.iter().map(|spec| spec.parse()).collect::<Result<_, _>>();
    let mut options = MkfsOptions {
        force,
        place: options::place(partition, offset, Place::WHOLE)?,
        byte_count: size,
        discard,
        label: label.to_owned(),
        node_size_bytes: node_size,
        sector_size_bytes: sector_size,
        data_profile: profile(data_profile)?,
        metadata_profile: profile(metadata_profile)?,
        mixed,
        checksum: parse_checksum(checksum).map_err(invalid)?,
        uuid: uuid.map(str::parse).transpose().map_err(invalid)?,
        root_dir: root_dir.map(PathBuf::from),
        subvolumes: specs.map_err(|error: MkfsError| invalid(error))?,
        shrink,
        compression: options::compression(compression)?,
        ..MkfsOptions::default()
    };
    options.features.apply(features).map_err(invalid)?;
    let targets: Vec<PathBuf> = paths.into_vec().into_iter().map(PathBuf::from).collect();
    let made = interruptibly(py, |going| {
        let going = going.clone();
        options.progress = Some(Progress::new(move |_| going.on()));
        larder::mkfs::mkfs(&targets, &options)
    });
    made?.map(MkfsSummary::from).map_err(|error| match error {
        MkfsError::InvalidOptions(text) => PyValueError::new_err(text),
        error => PyOSError::new_err((error.errno(), error.to_string())),
    })
}
