//! Removing files and trees.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use larder::commands::Command;
use larder_fuse::usage::MountTable;

use super::changes::OnMount;
use super::walk::count;
use crate::output::is_error_terminal;

/// Removes `path`, a name in the directory of `changes`, with everything below.
pub fn remove(changes: &mut OnMount, path: &Path) -> anyhow::Result<()> {
    let name = path.file_name().context("it has no name")?.as_bytes();
    if !path.symlink_metadata()?.is_dir() {
        return changes.make(&Command::Unlink { path: name });
    }
    let mounts = MountTable::of_this_process()?;
    if let Some(mount) = mounts.at_or_below(&path.canonicalize()?) {
        bail!("{} is mounted", mount.path.display());
    }
    if is_error_terminal() {
        count(path).inspect(|names| changes.expect_removals(*names));
    }
    changes.make(&Command::Rmdir { path: name })
}
