//! Paths on a mount, as its server takes them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use larder_ioctl::channel::node_of;
use rustix::fs::{AtFlags, CWD, Mode, statat};

use super::DIRECTORY;
use crate::target::parent_of;

/// A directory of a mount and a name there, which is empty if the path is the mount itself.
pub struct MountPath {
    pub directory: PathBuf,
    pub name: OsString,
}

impl MountPath {
    /// That of `path`, whose last part is a name or that is a directory.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        if is_mount(path)? {
            return Ok(Self { directory: path.to_owned(), name: OsString::new() });
        }
        let name = path.file_name().context("it has no name")?.to_owned();
        Ok(Self { directory: parent_of(path).to_owned(), name })
    }
}

/// Whether `directory` lies on a mount of larder.
pub fn is_ours(directory: &Path) -> bool {
    let open = rustix::fs::openat(CWD, directory, DIRECTORY, Mode::empty());
    open.is_ok_and(|open| node_of(open).is_ok_and(|node| node.is_some()))
}

/// Whether a file system begins at `path`.
fn is_mount(path: &Path) -> anyhow::Result<bool> {
    let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_directory = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    Ok(is_directory && statat(CWD, parent_of(path), AtFlags::empty())?.st_dev != found.st_dev)
}
