//! Paths on a mount, as its server takes them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use larder_ioctl::channel::node_of;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, statat};

use crate::target::parent_of;

/// A path on any other file system.
pub const NOT_OURS: &str = "is not on a mount of larder; use the system's own command";
/// How directories are opened.
pub const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

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

/// A path whose last part is a name: one that ends with a symbolic link leads where the link does,
/// if `follows`, and so does one that ends with a slash, `.` or `..`.
pub fn resolved(path: &Path, follows: bool) -> anyhow::Result<PathBuf> {
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let is_name = ends_with_name(path) && !(is_link && follows);
    let found = if is_name { Ok(path.to_owned()) } else { path.canonicalize() };
    found.with_context(|| path.display().to_string())
}

/// Whether a path ends with a name, and not with a slash, `.` or `..`.
pub fn ends_with_name(path: &Path) -> bool {
    let last = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next();
    !matches!(last, None | Some(b"" | b"." | b".."))
}

/// As [`resolved`], for many.
pub fn all_resolved(paths: &[OsString], follows: bool) -> anyhow::Result<Vec<PathBuf>> {
    paths.iter().map(|path| resolved(Path::new(path), follows)).collect()
}
