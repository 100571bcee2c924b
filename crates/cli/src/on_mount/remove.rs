//! Removing files and trees.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use larder::commands::Command;

use super::OnMount;
use super::mounts::expect_none_below;

/// Removes `path`, a name in the directory of `changes`, with everything below.
pub fn remove(changes: &mut OnMount, path: &Path) -> anyhow::Result<usize> {
    let name = path.file_name().context("it has no name")?;
    let is_directory = path.symlink_metadata()?.is_dir();
    let path = if is_directory {
        expect_none_below(path)?;
        Command::Rmdir { path: name.as_bytes() }
    } else {
        Command::Unlink { path: name.as_bytes() }
    };
    changes.make(&path).map(|()| 0)
}
