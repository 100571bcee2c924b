//! Changes at many paths.

use std::path::{Path, PathBuf};

use anyhow::Context;
use larder_copy::Gone;

use super::changes::OnMount;
use super::mount_path::MountPath;
use crate::interrupt;
use crate::message::message;

/// Does `work` with every path, and the changes below the directory of its [`MountPath`]. An error is
/// reported, and the next path follows. Returns how many changes failed, with those that `work`
/// reported itself.
pub fn with_each<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    mut work: impl FnMut(&mut OnMount, &Path) -> anyhow::Result<usize>,
) -> anyhow::Result<usize> {
    let mut failures = 0;
    let mut open: Option<(PathBuf, OnMount)> = None;
    for path in paths {
        match with_one(path.as_ref(), &mut open, &mut work) {
            Ok(failed) => failures += failed,
            Err(error) if Gone::is_behind(&error) => return Err(error),
            Err(error) => {
                interrupt::check()?;
                eprintln!("ERROR: {}", message(&error));
                failures += 1;
            }
        }
    }
    if let Some((_, changes)) = open {
        failures += changes.finish()?;
    }
    Ok(failures)
}

/// Does `work` with `path`. The changes that are `open` are used if they are below its directory, and
/// otherwise finished. Returns how many changes failed.
fn with_one(
    path: &Path,
    open: &mut Option<(PathBuf, OnMount)>,
    work: &mut impl FnMut(&mut OnMount, &Path) -> anyhow::Result<usize>,
) -> anyhow::Result<usize> {
    let named = || path.display().to_string();
    let MountPath { directory: parent, .. } = MountPath::of(path).with_context(named)?;
    let mut failures = 0;
    if open.as_ref().is_none_or(|(directory, _)| *directory != parent) {
        if let Some((_, changes)) = open.take() {
            failures += changes.finish()?;
        }
        let changes = OnMount::below(&parent, path)?;
        *open = Some((parent, changes));
    }
    if let Some((_, changes)) = open {
        failures += work(changes, path).with_context(named)?;
    }
    Ok(failures)
}
