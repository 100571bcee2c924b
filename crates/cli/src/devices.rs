//! The devices of the file system that an operand names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder::device::Place;
use larder::{FilesystemName, find_filesystem, find_further_devices};

use crate::objects::url_at;
use crate::operand::parse_uuid;

/// Whether `text` names a file system by its uuid or label, and is no path of a file.
pub fn is_name(text: &OsStr) -> bool {
    let starts = [&b"UUID="[..], b"LABEL="].iter().any(|start| text.as_bytes().starts_with(start));
    starts && Path::new(text).symlink_metadata().is_err()
}

/// The devices that `operands` name: paths, or names of file systems. A directory that holds the
/// objects of one is its URL.
pub fn named(operands: &[impl AsRef<Path>]) -> anyhow::Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    for operand in operands.iter().map(AsRef::as_ref) {
        if is_name(operand.as_os_str()) {
            devices.extend(find_filesystem(&parse_name(operand.as_os_str())?)?);
        } else {
            devices.push(url_at(operand).unwrap_or_else(|| operand.to_owned()));
        }
    }
    Ok(devices)
}

/// The devices of the file system that `operands` name, with those that are found beside them.
pub fn all(operands: &[impl AsRef<Path>], place: Place) -> anyhow::Result<Vec<PathBuf>> {
    let mut devices = named(operands)?;
    devices.extend(find_further_devices(&devices, place)?);
    Ok(devices)
}

fn parse_name(text: &OsStr) -> anyhow::Result<FilesystemName> {
    let bytes = text.as_bytes();
    if let Some(label) = bytes.strip_prefix(b"LABEL=") {
        return Ok(FilesystemName::Label(label.to_vec()));
    }
    let uuid = bytes.strip_prefix(b"UUID=").unwrap_or_default();
    let uuid = parse_uuid(&String::from_utf8_lossy(uuid)).map_err(anyhow::Error::msg)?;
    Ok(FilesystemName::Uuid(uuid))
}
