//! Options that several calls have, as the library's types.

use larder::device::Place;
use larder::{Compression, WriteCompression};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Where a file system is: in a partition, or from an offset in bytes on.
pub(crate) fn place(
    partition: Option<u32>,
    offset: Option<u64>,
    otherwise: Place,
) -> PyResult<Place> {
    match (partition, offset) {
        (Some(_), Some(_)) => Err(PyValueError::new_err("partition and offset exclude each other")),
        (Some(partition), None) => Ok(Place::Partition(partition)),
        (None, Some(offset)) => Ok(Place::Offset(offset)),
        (None, None) => Ok(otherwise),
    }
}

/// Compression in the notation of mount options: `zstd`, `zlib:9`.
pub(crate) fn compression(text: Option<&str>) -> PyResult<Option<Compression>> {
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// The same for writing.
pub(crate) fn write_compression(text: Option<&str>) -> PyResult<Option<WriteCompression>> {
    let compression = compression(text)?;
    Ok(compression.map(|compression| WriteCompression { compression, force: false }))
}

/// An argument that does not parse.
pub(crate) fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
