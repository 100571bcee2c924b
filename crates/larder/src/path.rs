//! Paths and names: bytes on disk, the operating system's strings in this library.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

pub(crate) fn owned_name(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

pub(crate) fn owned(bytes: Vec<u8>) -> PathBuf {
    owned_name(bytes).into()
}
