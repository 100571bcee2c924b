//! Other systems than Linux, where no directory is copied.

use std::path::{Path, PathBuf};

use super::Source;
use crate::{MkfsError, MkfsOptions};

/// Refuses to copy `root`.
pub(crate) fn scan(
    root: &Path,
    _options: &MkfsOptions,
    _targets: &[PathBuf],
) -> Result<Source, MkfsError> {
    Err(refused(root.to_owned()))
}

/// Why `path` is not copied.
pub(crate) fn refused(path: PathBuf) -> MkfsError {
    let problem = "mkfs copies directories on Linux only; make an empty file system, and create its \
                   files one by one";
    MkfsError::Unsupported { path, problem: problem.into() }
}
